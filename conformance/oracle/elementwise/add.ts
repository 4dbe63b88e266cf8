/** Elementwise sums: the exact sum, rounded once to f32. */
import { add as sum } from "../core/rational.js";

export function add(x: ArrayLike<number>, y: ArrayLike<number>): number[] {
  return Array.from(x, (value, i) => sum(value, y[i] as number));
}
