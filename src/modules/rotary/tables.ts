/** Tables of the cosines and sines of a rotary embedding. */
import { cosineAndSine } from "./cosine.js";
import type { Frequencies } from "./inverse-frequencies.js";

/** Cosines and sines, [positions, pairs]. */
export interface RotaryTables {
  readonly cos: Float32Array;
  readonly sin: Float32Array;
}

/** Returns the cosines and sines of positions offset, offset + 1, ... Positions are multiplied by `scale` (numerics.md §10.7). */
export function rotaryTables(
  { inverse, factor }: Frequencies,
  {
    positions,
    offset,
    scale,
  }: { readonly positions: number; readonly offset: number; readonly scale: number },
): RotaryTables {
  const pairs = inverse.length;
  const cos = new Float32Array(positions * pairs);
  const sin = new Float32Array(positions * pairs);
  for (let p = 0; p < positions; p++) {
    const position = Math.fround(Math.fround(offset + p) * scale);
    for (const [i, frequency] of inverse.entries()) {
      const [c, s] = cosineAndSine(Math.fround(position * frequency));
      cos[p * pairs + i] = c * factor;
      sin[p * pairs + i] = s * factor;
    }
  }
  return { cos, sin };
}
