/**
 * Activations that are moved to the host until the backward pass change no bit of results and gradients, of any module under any
 * recipe, in several steps. After the backward pass the backend has as much live memory as without.
 */
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { offloadActivations } from "../../../src/modules/offload-activations.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { MXFP8BlockScaling, NVFP4BlockScaling } from "../../../src/recipes/block-scaled.js";
import { DelayedScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import type { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import { hashOf } from "../harness/drawn-tensor.js";
import {
  combineResults,
  createInputs,
  inputsWithGradients,
  randomGradient,
  recomputeModule,
  regionOptions,
  rowsWhere,
  testedCases,
} from "../harness/modules/calls.js";
import type { BuiltModule, ModuleRow } from "../harness/modules/row.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

const SIZES = { rows: 32, from: 32, to: 32, middle: 32 };
const STEPS = 2;
const RECIPES: Readonly<Record<string, () => Recipe | undefined>> = {
  none: () => undefined,
  delayed: () => new DelayedScaling({ amaxHistoryLen: 2 }),
  MXFP8: () => new MXFP8BlockScaling(),
  NVFP4: () => new NVFP4BlockScaling(),
};

type Forward = (builtModule: BuiltModule, inputs: readonly Variable[]) => Variable;

const forward: Forward = (builtModule, inputs) => combineResults(builtModule.run(inputs));

const FORWARDS: Readonly<Record<string, Forward>> = {
  "all at once": forward,
  "and recomputed in the backward pass": recomputeModule,
};

/** The hashes of results and gradients of all steps, and the bytes that are live after each forward pass and at the end. */
function train(row: ModuleRow, recipe: Recipe | undefined, run: Forward) {
  using _ = new Scope();
  const builtModule = row.build(backend(), SIZES, { random: new RandomState(1n) });
  using _module = builtModule.module;
  const hashes: string[] = [];
  const liveBytes: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    using _step = new Scope();
    const inputs = createInputs(backend(), builtModule, { ...SIZES, seed: 1 + step });
    const y = autocast(regionOptions(recipe), () => run(builtModule, inputs));
    liveBytes.push(backend().memoryUse().live);
    if (y.requiresGrad) y.backward(randomGradient(y, 2 + step));
    liveBytes.push(backend().memoryUse().live);
    const leaves = [...inputsWithGradients(inputs), ...builtModule.module.parameters()];
    for (const { grad } of leaves) hashes.push(hashOf(grad));
    hashes.push(hashOf(y.tensor));
    for (const leaf of leaves) leaf.zeroGrad();
  }
  return { hashes, liveBytes };
}

const CASES = rowsWhere().flatMap(([name, row]) =>
  Object.entries(RECIPES)
    .filter(([recipe]) => recipe === "none" || row.quantizes)
    .flatMap(([recipe, make]) =>
      Object.entries(FORWARDS).map(([how, run]) => ({ name, recipe, make, how, row, run })),
    ),
);

describe("activations on the host change no bit", () => {
  it.each(testedCases(CASES, ({ row }) => row))("of $name, $recipe, $how", ({ row, make, run }) => {
    const kept = train(row, make(), run);
    const offloaded = train(row, make(), (builtModule, inputs) =>
      offloadActivations(() => run(builtModule, inputs), { minBytes: 1 }),
    );
    expect(offloaded.hashes).toEqual(kept.hashes);
    for (const [i, bytes] of offloaded.liveBytes.entries()) {
      if (i % 2 === 0) expect(bytes).toBeLessThanOrEqual(kept.liveBytes[i] as number);
      else expect(bytes).toBe(kept.liveBytes[i]);
    }
  });
});
