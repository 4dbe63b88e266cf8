/** Tests that check the laws of a group of operations on a GPU against the reference. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { cudaDevices } from "../../../../src/backends/open.js";
import { matrixShape } from "../../../arbitraries/matrices.js";
import type { CheckResult, Law } from "../../../laws/law.js";
import { LAWS, over } from "../../../laws/laws.js";
import { inputsFor } from "../../../laws/run.js";
import type { Inputs } from "../../../laws/run-options.js";
import { backendSubject, OPERATIONS, type OperationName } from "../../../operations/operations.js";
import { LARGE_INPUTS, largeShapes } from "../../arbitraries/large.js";
import { shardInputs } from "../../arbitraries/shards.js";
import { turnsFor } from "../../arbitraries/turns.js";
import { describeOnGpu, RUNS, SEED, useGpu } from "./gpu.js";
import { GPU_GROUPS } from "./groups.js";
import { OptionPairs } from "./option-pairs.js";
import { record } from "./record.js";

/**
 * A long run continues until RUNS inputs were computed and each pair of options was drawn this often, or until its time is up.
 */
const EACH_PAIR = 100;
const MAX_SECONDS = RUNS >= 10_000 ? 100 : 0;
/** The number of inputs that drive a loop to its second iteration; these are very large. */
const TURN_RUNS = Math.min(Math.ceil(RUNS / 50), 20);
/** The number of large inputs. */
const LARGE_RUNS = Math.min(Math.ceil(RUNS / 10), 60);

/** The operations for which a GPU declines some inputs, with a reason. */
const DECLINES: readonly OperationName[] = ["gemm", "batchedGemm"];
/** The only reason for which a GPU declines inputs of these operations (steps/whole-blocks.ts). */
const REASONS: { readonly [K in OperationName]?: RegExp } = {
  quantize: /^quantize: a noop flag does not go with/,
};

type Declined = CheckResult["declined"];

function added(all: Declined, more: Declined): Declined {
  const counts = new Map(all.map(({ reason, count }) => [reason, count]));
  for (const { reason, count } of more) counts.set(reason, (counts.get(reason) ?? 0) + count);
  return Array.from(counts, ([reason, count]) => ({ reason, count }));
}

/** A comparing law whose drawn options are counted; other laws are unchanged. */
function counted(each: Law, inputs: Inputs, pairs: OptionPairs): Law {
  if (!each.compares) return each;
  const arbitrary = inputs[each.operation] ?? OPERATIONS[each.operation].arbitrary;
  return over({ [each.operation]: pairs.counting(arbitrary as never) }, each);
}

/**
 * Tests every law of a group's operations: first with small inputs aimed at edge cases, then with sizes at which loops
 * run a second iteration, then with shards that are rounded stochastically, small and large, then with large inputs.
 */
export function describeLawsOnGpu(group: keyof typeof GPU_GROUPS): void {
  const operations: readonly OperationName[] = GPU_GROUPS[group];
  describeOnGpu(`laws of ${group} on a GPU, to the bit`, () => {
    const { gpu, reference } = useGpu();

    const check = async (law: Law, runs: number, seed: number): Promise<CheckResult> => {
      const result = await law.check(backendSubject(gpu()), backendSubject(reference()), { runs, seed });
      expect(result.failure).toBeUndefined();
      if (DECLINES.includes(law.operation)) expect(result.runs).toBeGreaterThan(runs / 4);
      else {
        const explained = result.declined.filter(({ reason }) => REASONS[law.operation]?.test(reason));
        expect(result.declined).toEqual(explained);
        expect(result.runs + explained.reduce((sum, { count }) => sum + count, 0)).toBe(runs);
      }
      return result;
    };

    for (const law of LAWS.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}`, async () => {
        const pairs = new OptionPairs();
        const each = counted(law, inputsFor(gpu()), pairs);
        let total = 0;
        let declined: Declined = [];
        const start = performance.now();
        for (let round = 0; ; round++) {
          const result = await check(each, RUNS, SEED + round);
          total += result.runs;
          declined = added(declined, result.declined);
          const enough = total >= RUNS && (pairs.rarest?.count ?? EACH_PAIR) >= EACH_PAIR;
          if (enough) break;
          if (performance.now() - start > 1000 * MAX_SECONDS) break;
        }
        const { rarest } = pairs;
        const drawn = rarest ? { pairs: pairs.pairs, rarest: rarest.count } : {};
        record(gpu(), { group: "laws", name: law.name, runs: total, declined, ...drawn });
      });
    }

    const turns = turnsFor(cudaDevices()[0]?.multiprocessors ?? 1);
    for (const law of LAWS.filter(({ compares, operation }) => compares && operations.includes(operation))) {
      for (const [i, arbitrary] of (turns[law.operation] ?? []).entries()) {
        it(`${law.operation}: ${law.name}, second turns ${i + 1}`, async () => {
          const inputs = { [law.operation]: fc.noShrink(arbitrary as fc.Arbitrary<never>) };
          await check(over(inputs, law), TURN_RUNS, SEED);
        });
      }
    }

    const shards = shardInputs(matrixShape);
    const largeShards = shardInputs(largeShapes());
    const ofShards = LAWS.filter(({ compares, operation }) => compares && shards[operation]);
    for (const law of ofShards.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}, shards`, async () => {
        const { runs, declined } = await check(over(shards, law), RUNS, SEED);
        record(gpu(), { group: "laws", name: `${law.name}, shards`, runs, declined });
      });
      it(`${law.operation}: ${law.name}, large shards`, async () => {
        const { runs, declined } = await check(over(largeShards, law), LARGE_RUNS, SEED);
        record(gpu(), { group: "large", name: `${law.name}, shards`, runs, declined });
      });
    }

    const large = LAWS.filter(({ compares, operation }) => compares && LARGE_INPUTS[operation]);
    for (const law of large.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}, large inputs`, async () => {
        const { runs, declined } = await check(over(LARGE_INPUTS, law), LARGE_RUNS, SEED);
        record(gpu(), { group: "large", name: law.name, runs, declined });
      });
    }
  });
}
