/** The accuracy of each recipe relative to bf16: mean relative errors lie between two bounds. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../src/autocast.js";
import { castTo } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { RandomState } from "../../../src/quantizers/random-state.js";
import { normal } from "../../../src/random.js";
import { Variable } from "../../../src/tape/variable.js";
import { Scope } from "../../../src/tensor/scope.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import type { Tensor } from "../../../src/tensor/tensor.js";
import { draws } from "../harness/draws.js";
import { combineResults, rowsWhere } from "../harness/modules/calls.js";
import type { ModuleRow } from "../harness/modules/row.js";
import { GRADIENT_RECIPE_NAMES, recipeByName } from "../harness/step/library-recipes.js";
import type { RecipeName } from "../harness/step/options.js";
import { useBackend } from "../harness/suite.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });

/** Layers of one product, whose result and bias are those of the module. */
const LAYERS = rowsWhere(
  ({ products, operationsOf }) =>
    !operationsOf && products?.({ rows: 1, from: 1, to: 1, middle: 1 }).length === 1,
);

const sizes = fc.constantFrom(64, 128, 256);
const sizesAndSeed = fc.record({ rows: sizes, inward: sizes, out: sizes, seed: fc.bigInt(0n, 2n ** 32n) });
type Drawn = typeof sizesAndSeed extends fc.Arbitrary<infer T> ? T : never;

function drawNoise(seed: bigint, offset: bigint, shape: Shape): Tensor<WideDType> {
  const count = shape.reduce((a, b) => a * b, 1);
  return castTo(tensor(backend(), normal({ seed, offset }, count, 1), shape), "bf16");
}

/** The result and gradients of a layer's second step; its scales come from the first step. */
function results(row: ModuleRow, name: RecipeName, { rows, inward, out, seed }: Drawn) {
  const random = new RandomState(seed);
  using builtModule = row.build(backend(), { rows, from: inward, to: out, middle: out }, { random });
  const region = name === "none" ? { enabled: false } : { recipe: recipeByName(name) };
  const x = new Variable(drawNoise(seed, 100n, [rows, inward]), true);
  const dy = drawNoise(seed, 101n, [rows, out]);
  const step = (): Variable => {
    x.zeroGrad();
    for (const parameter of builtModule.module.parameters()) parameter.zeroGrad();
    const y = autocast(region, () => combineResults(builtModule.run([x])));
    y.backward(dy);
    return y;
  };
  step();
  const y = step();
  const values = {
    y: valuesOf(y.tensor),
    dgrad: valuesOf(x.grad),
    wgrad: valuesOf(builtModule.module.namedParameters().get("weight")?.grad),
    bgrad: valuesOf(builtModule.module.namedParameters().get("bias")?.grad),
  };
  x.zeroGrad();
  return values;
}

function valuesOf(x: Tensor<WideDType> | undefined): Float32Array {
  return (castTo(x as Tensor<WideDType>, "f32") as Tensor<"f32">).dataSync();
}

/**
 * The mean error divided by the mean magnitude. (The mean of the quotients, which TransformerEngine takes, has no
 * expectation, because sums of products may be arbitrarily close to zero.)
 */
function relativeError(actual: Float32Array, exact: Float32Array): number {
  const sum = (term: (i: number) => number): number =>
    exact.reduce((total, _, i) => total + Math.abs(term(i)), 0);
  const [exactAt, actualAt] = [(i: number) => exact[i] as number, (i: number) => actual[i] as number];
  return sum((i) => actualAt(i) - exactAt(i)) / sum(exactAt);
}

/**
 * The bounds of the errors: a smaller error means that something is computed with more bits than the recipe says, a
 * larger one with fewer. The bias gradient sums values that are not quantized.
 */
const BOUNDS = {
  8: { y: [0.02, 0.05], dgrad: [0.02, 0.08], wgrad: [0.02, 0.08], bgrad: [0, 0] },
  4: { y: [0.1, 0.2], dgrad: [0.1, 0.25], wgrad: [0.1, 0.25], bgrad: [0, 0] },
} as const;

describe.each(LAYERS)("%s", (_, row) => {
  it.each(GRADIENT_RECIPE_NAMES)(
    "%s: errors against bf16 have the size that its number of bits allows",
    (name) => {
      const bounds = BOUNDS[name.startsWith("nvfp4") ? 4 : 8];
      fc.assert(
        fc.property(sizesAndSeed, (choice) => {
          using _scope = new Scope();
          const [actual, exact] = [results(row, name, choice), results(row, "none", choice)];
          for (const key of ["y", "dgrad", "wgrad", "bgrad"] as const) {
            const error = relativeError(actual[key], exact[key]);
            const [min, max] = bounds[key];
            expect(error, key).toBeGreaterThanOrEqual(min);
            expect(error, key).toBeLessThanOrEqual(max);
          }
        }),
        { numRuns: draws(3, 1) },
      );
    },
  );
});
