/** Arbitraries of runs of layers, and the library objects for the drawn values. */
import fc from "fast-check";
import {
  DelayedScaling,
  Float8CurrentScaling,
  MXFP8BlockScaling,
  type Recipe,
} from "../../../../src/index.js";
import { words } from "../../../arbitraries/random.js";
import type { DelayedModel } from "../../../oracle/training/delayed-slots.js";
import type { Codes, RecipeModel } from "../../../oracle/training/delayed-training.js";

/** The size of every matrix. All are square, so that each can be an input, a weight or a gradient. */
export const SIZE = 32;

const delayedModel: fc.Arbitrary<DelayedModel> = fc.record({
  kind: fc.constant("delayed" as const),
  format: fc.constantFrom("HYBRID", "E4M3"),
  margin: fc.integer({ min: -2, max: 3 }),
  length: fc.integer({ min: 1, max: 5 }),
  algorithm: fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom("max" as const, "mostRecent" as const) },
    { weight: 1, arbitrary: fc.constantFrom("oldest" as const, "doubled" as const) },
  ),
  scaling: fc.oneof(
    { weight: 6, arbitrary: fc.constant("default" as const) },
    { weight: 1, arbitrary: fc.constant("mean" as const) },
  ),
  reduces: fc.boolean(),
});

/** Any recipe, mostly delayed scaling. */
export const recipeModel: fc.Arbitrary<RecipeModel> = fc.oneof(
  { weight: 6, arbitrary: delayedModel },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("current" as const), pow2: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant("mxfp8" as const), square: fc.boolean() }),
  },
);

/** A matrix of bf16 codes around a random magnitude. Some matrices are zero; some contain an infinity or a NaN. */
export const matrix: fc.Arbitrary<Codes> = fc
  .record({
    seed: fc.nat(),
    exponent: fc.oneof({ weight: 4, arbitrary: fc.integer({ min: -6, max: 4 }) }, fc.constantFrom(-120, 40)),
    special: fc.oneof(
      { weight: 12, arbitrary: fc.constant(undefined) },
      fc.constantFrom("zero" as const, 0x7f80, 0xff80, 0x7fc0),
    ),
  })
  .map(({ seed, exponent, special }) => {
    const name = `matrix ${seed} * 2^${exponent}${special === undefined ? "" : ` with ${special}`}`;
    if (special === "zero") return nameCodes(new Uint16Array(SIZE * SIZE), "zeros");
    const codes = Uint16Array.from(words(seed, SIZE * SIZE), (word) => {
      const field = 127 + exponent - ((word >>> 8) & 3);
      return ((word >>> 16) & 0x8000) | (field << 7) | (word & 0x7f);
    });
    if (special !== undefined) codes[seed % codes.length] = special;
    return nameCodes(codes, name);
  });

/** Gives codes a name under which fast-check prints them. */
function nameCodes(codes: Codes, name: string): Codes {
  return Object.defineProperties(codes, {
    [fc.toStringMethod]: { value: () => name },
    toString: { value: () => name },
  });
}

const CUSTOM_ALGORITHMS = {
  oldest: (history: Float32Array): number => history.at(1) ?? (history[0] as number),
  doubled: (history: Float32Array): number => 2 * history.reduce((a, b) => Math.max(a, b)),
};

function meanScale(amax: number, scale: number): number {
  return (scale + Math.min(amax, 1024)) / 2;
}

/** A new recipe object of the library. */
export function createRecipe(model: RecipeModel): Recipe {
  if (model.kind === "current") return new Float8CurrentScaling({ pow2Scales: model.pow2 });
  if (model.kind === "mxfp8") return new MXFP8BlockScaling({ enable2dQuantization: model.square });
  const { format, margin, algorithm, scaling, reduces } = model;
  return new DelayedScaling({
    format,
    margin,
    amaxHistoryLen: model.length,
    amaxComputeAlgo:
      algorithm === "max" || algorithm === "mostRecent" ? algorithm : CUSTOM_ALGORITHMS[algorithm],
    ...(scaling === "mean" ? { scalingFactorComputeAlgo: meanScale } : {}),
    reduceAmax: reduces,
  });
}
