/** Recipes for tests that compare two runs of a layer, and drawn values for its tensors. */
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../src/recipes/block-scaled.js";
import { DelayedScaling, Float8CurrentScaling } from "../../../src/recipes/per-tensor.js";
import type { Recipe } from "../../../src/recipes/recipe.js";
import { words } from "../../arbitraries/random.js";
import type { PlainTensor } from "../../values/plain.js";
import { rounded } from "../../values/rounded.js";

/** Each recipe without stochastic rounding, and bf16 (no recipe). */
export const DETERMINISTIC_RECIPES: Readonly<Record<string, () => Recipe | undefined>> = {
  bf16: () => undefined,
  delayed: () => new DelayedScaling({ amaxHistoryLen: 3 }),
  current: () => new Float8CurrentScaling(),
  block: () => new Float8BlockScaling(),
  mxfp8: () => new MXFP8BlockScaling(),
  nvfp4: () => new NVFP4BlockScaling({ disableStochasticRounding: true }),
};

const valuesCache = new Map<string, PlainTensor<"bf16">>();

/** Values from -1 to 1 in bf16. Cached, because the oracle's rounding is slow. */
export function drawnValues(seed: number, shape: readonly number[]): PlainTensor<"bf16"> {
  const key = `${seed}: ${shape}`;
  const cachedValues = valuesCache.get(key);
  if (cachedValues) return cachedValues;
  const size = shape.reduce((a, b) => a * b, 1);
  const values = rounded(
    "bf16",
    shape,
    Array.from(words(seed, size), (word) => Math.fround(word / 2 ** 31 - 1)),
  );
  valuesCache.set(key, values);
  return values;
}
