/** The slopes of ALiBi. */
import { exp, fixed, log, ratio, toOdd } from "../rotary/fixed-point.js";

/**
 * Returns the slopes of the publication for a number of heads, rounded to the nearest f32. With n the largest power of two up to
 * `heads`, the first n are 2^(-8i/n) for i from 1, and the others 2^(-4i/n) for odd i.
 */
export function alibiSlopes(heads: number): Float32Array {
  const n = 2 ** Math.floor(Math.log2(heads));
  const logarithm = log(fixed(2));
  const power = (numerator: number): number =>
    Math.fround(toOdd(exp(ratio(-logarithm, BigInt(numerator), BigInt(n)))));
  return Float32Array.from({ length: heads }, (_, i) =>
    i < n ? power(8 * (i + 1)) : power(4 * (2 * (i - n) + 1)),
  );
}
