/** Dropout of elements (numerics.md §7.14). */
import { random16 } from "../core/philox.js";
import { mul } from "../core/rational.js";

/** The f32 results, not yet rounded to a type. */
export function dropout(
  x: readonly number[],
  { probability, seed, offset }: { probability: number; seed: bigint; offset: bigint },
): number[] {
  const threshold = Math.min(Math.floor(probability * 2 ** 16 + 0.5), 65_535);
  const keep = Math.fround(2 ** 16 / (2 ** 16 - threshold));
  return x.map((value, i) => (random16(seed, offset, 0, BigInt(i)) < threshold ? 0 : mul(value, keep)));
}
