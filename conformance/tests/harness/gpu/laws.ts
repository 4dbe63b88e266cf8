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
const MIN_PAIR_COUNT = 100;
const MAX_SECONDS = RUNS >= 10_000 ? 100 : 0;
/** The number of inputs that are so large that a loop runs a second iteration. */
const SECOND_ITERATION_RUNS = Math.min(Math.ceil(RUNS / 50), 20);
/** The number of large inputs. */
const LARGE_RUNS = Math.min(Math.ceil(RUNS / 10), 60);

/** The operations for which a GPU declines some inputs, with a reason. */
const DECLINING_OPERATIONS: readonly OperationName[] = ["gemm", "batchedGemm"];
/** The only reason for which a GPU declines inputs of these operations (steps/whole-blocks.ts). */
const DECLINE_REASONS: { readonly [K in OperationName]?: RegExp } = {
  quantize: /^quantize: a noop flag does not go with/,
};

type DeclinedCounts = CheckResult["declined"];

function addCounts(previous: DeclinedCounts, more: DeclinedCounts): DeclinedCounts {
  const counts = new Map(previous.map(({ reason, count }) => [reason, count]));
  for (const { reason, count } of more) counts.set(reason, (counts.get(reason) ?? 0) + count);
  return Array.from(counts, ([reason, count]) => ({ reason, count }));
}

/** Returns a law that counts its drawn options, or the law itself if it compares no backends. */
function countOptions(law: Law, inputs: Inputs, pairs: OptionPairs): Law {
  if (!law.compares) return law;
  const arbitrary = inputs[law.operation] ?? OPERATIONS[law.operation].arbitrary;
  return over({ [law.operation]: pairs.countDraws(arbitrary as never) }, law);
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
      if (DECLINING_OPERATIONS.includes(law.operation)) expect(result.runs).toBeGreaterThan(runs / 4);
      else {
        const expectedReasons = result.declined.filter(({ reason }) =>
          DECLINE_REASONS[law.operation]?.test(reason),
        );
        expect(result.declined).toEqual(expectedReasons);
        expect(result.runs + expectedReasons.reduce((sum, { count }) => sum + count, 0)).toBe(runs);
      }
      return result;
    };

    for (const law of LAWS.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}`, async () => {
        const pairs = new OptionPairs();
        const countedLaw = countOptions(law, inputsFor(gpu()), pairs);
        let total = 0;
        let declined: DeclinedCounts = [];
        const start = performance.now();
        for (let round = 0; ; round++) {
          const result = await check(countedLaw, RUNS, SEED + round);
          total += result.runs;
          declined = addCounts(declined, result.declined);
          const isComplete = total >= RUNS && (pairs.rarest?.count ?? MIN_PAIR_COUNT) >= MIN_PAIR_COUNT;
          if (isComplete) break;
          if (performance.now() - start > 1000 * MAX_SECONDS) break;
        }
        const { rarest } = pairs;
        const pairCounts = rarest ? { pairs: pairs.pairs, rarest: rarest.count } : {};
        record(gpu(), { group: "laws", name: law.name, runs: total, declined, ...pairCounts });
      });
    }

    const secondIterationInputs = turnsFor(cudaDevices()[0]?.multiprocessors ?? 1);
    for (const law of LAWS.filter(({ compares, operation }) => compares && operations.includes(operation))) {
      for (const [i, arbitrary] of (secondIterationInputs[law.operation] ?? []).entries()) {
        it(`${law.operation}: ${law.name}, second turns ${i + 1}`, async () => {
          const inputs = { [law.operation]: fc.noShrink(arbitrary as fc.Arbitrary<never>) };
          await check(over(inputs, law), SECOND_ITERATION_RUNS, SEED);
        });
      }
    }

    const shards = shardInputs(matrixShape);
    const largeShards = shardInputs(largeShapes());
    const shardLaws = LAWS.filter(({ compares, operation }) => compares && shards[operation]);
    for (const law of shardLaws.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}, shards`, async () => {
        const { runs, declined } = await check(over(shards, law), RUNS, SEED);
        record(gpu(), { group: "laws", name: `${law.name}, shards`, runs, declined });
      });
      it(`${law.operation}: ${law.name}, large shards`, async () => {
        const { runs, declined } = await check(over(largeShards, law), LARGE_RUNS, SEED);
        record(gpu(), { group: "large", name: `${law.name}, shards`, runs, declined });
      });
    }

    const largeLaws = LAWS.filter(({ compares, operation }) => compares && LARGE_INPUTS[operation]);
    for (const law of largeLaws.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}, large inputs`, async () => {
        const { runs, declined } = await check(over(LARGE_INPUTS, law), LARGE_RUNS, SEED);
        record(gpu(), { group: "large", name: law.name, runs, declined });
      });
    }
  });
}
