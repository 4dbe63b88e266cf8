// Whole modules of TransformerEngine, forward and backward, over several microbatches and iterations. The reference has
// the same bits in all results, gradients and scaling states, except those computed after the backward pass of a
// norm, whose sums have another order.
import { describe, expect, it } from "vitest";
import { sampleCases } from "../harness/draws.js";
import { IS_FULL } from "../harness/full.js";
import { useBackend } from "../harness/suite.js";
import { combineByResult, expectDistances } from "../harness/te/distances.js";
import { type ModuleCase, runModule, type StateResults } from "../harness/te/modules.js";
import {
  canonicalBytes,
  computeDistances,
  type Distances,
  type RecordedResult,
  readWitness,
  recordedBytes,
  toRecordedForm,
} from "../harness/te/recorded.js";

const { origin, cases } = readWitness<ModuleCase>("modules");
const backend = useBackend({ datapath: "hopper" });

function floatsOf(recordedResult: RecordedResult): Float32Array {
  return new Float32Array(recordedBytes(recordedResult).buffer);
}

function expectState(
  state: StateResults | undefined,
  moduleCase: ModuleCase,
  iteration: number,
  pass: "forward" | "backward",
) {
  const recordedResult = moduleCase.results[iteration]?.[pass];
  expect(state === undefined, `${pass} state`).toBe(recordedResult === undefined);
  if (!state || !recordedResult) return;
  expect(state.scale, `${pass} scale`).toEqual(floatsOf(recordedResult.scale));
  expect(state.history, `${pass} history`).toEqual(floatsOf(recordedResult.history));
}

/** The differences of results computed after the backward pass of a norm, by module, recipe and result. */
const distancesByName = new Map<string, Distances[]>();

const named = cases.map((moduleCase) => {
  const { results: _, seed: __, ...options } = moduleCase;
  return [Object.values(options).join(" "), moduleCase] as const;
});

describe(`modules of ${origin.version} on an ${origin.gpu}`, () => {
  it.each(sampleCases(named, 3))("%s", async (_, moduleCase) => {
    let comparedCount = 0;
    await runModule(backend(), moduleCase, async (results, iteration) => {
      for (const [index, microbatch] of results.microbatches.entries()) {
        const recordedResult = moduleCase.results[iteration]?.microbatches[index] ?? {};
        expect(Object.keys(recordedResult).filter((name) => name !== "algorithms")).toEqual([
          ...microbatch.keys(),
        ]);
        for (const [name, tensor] of microbatch) {
          const expected = recordedResult[name] as RecordedResult;
          const bytes = await canonicalBytes(tensor);
          comparedCount++;
          if (expected.bits === undefined) {
            expect(
              toRecordedForm(bytes, expected),
              `${name}, iteration ${iteration}, microbatch ${index}`,
            ).toEqual(expected);
          } else {
            const key = `${moduleCase.module} ${moduleCase.recipe}: ${name}`;
            distancesByName.set(key, [
              ...(distancesByName.get(key) ?? []),
              computeDistances(bytes, expected),
            ]);
          }
        }
      }
      expectState(results.forward, moduleCase, iteration, "forward");
      expectState(results.backward, moduleCase, iteration, "backward");
    });
    expect(comparedCount).toBe(
      moduleCase.iterations *
        moduleCase.microbatches *
        (moduleCase.results[0]?.microbatches[0]
          ? Object.keys(moduleCase.results[0].microbatches[0]).length - 1
          : 0),
    );
  });

  // a distance is the largest one over all modules
  const needsAll = IS_FULL ? "" : " (skipped in a short run, which has some of the modules)";
  it.skipIf(!IS_FULL)(
    `have norm gradients that differ from ours by the recorded distances${needsAll}`,
    () => {
      expectDistances("modules", combineByResult(distancesByName));
    },
  );
});
