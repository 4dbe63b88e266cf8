/** A tensor times a number: the exact product with the factor rounded to f32, rounded once to f32. */
import { mul } from "../core/rational.js";

export function scaled(x: ArrayLike<number>, factor: number): number[] {
  const rounded = Math.fround(factor);
  return Array.from(x, (value) => mul(value, rounded));
}
