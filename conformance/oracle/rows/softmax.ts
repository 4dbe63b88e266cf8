/** Softmax of a row and its gradient, in f32 operations that are rounded one by one. */
import { exp } from "../core/math.js";
import { laneSum } from "./norm.js";

const f = Math.fround;

/** The number of unmasked elements in row `index` of a matrix [rows, columns]. */
export function countUnmasked(
  index: number,
  [rows, columns]: readonly [number, number],
  causal: boolean,
): number {
  return Array.from({ length: columns }, (_, j) => j).filter((j) => !causal || j <= index + (columns - rows))
    .length;
}

/** Softmax over the first `length` elements; the other results are 0. */
export function softmax(row: readonly number[], length: number, scale = 1): number[] {
  const z = row.slice(0, length).map((x) => f(f(scale) * x));
  const maximum = f(
    z.reduce((top, x) => (Number.isNaN(x) ? top : Math.max(top, x)), Number.NEGATIVE_INFINITY) + 0,
  );
  const powers = z.map((x) => exp(f(x - maximum)));
  const total = laneSum(powers);
  return row.map((_, j) => (j < length ? f(powers[j]! / total) : 0));
}

/** The gradient of the row, from the result y of `softmax` and the gradient of y. */
export function softmaxBackward(
  grad: readonly number[],
  y: readonly number[],
  length: number,
  scale = 1,
): number[] {
  const total = laneSum(y.slice(0, length).map((share, j) => f(share * grad[j]!)));
  return y.map((share, j) => (j < length ? f(f(scale) * f(share * f(grad[j]! - total))) : 0));
}
