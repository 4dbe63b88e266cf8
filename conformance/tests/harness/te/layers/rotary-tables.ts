/** The cosines and sines of TransformerEngine's rotary embedding, computed as CUDA computes them. */
import { cosf, sinf } from "../../../../oracle/core/math-functions.js";

/** The tables [positions, width / 2] for angles [positions, 1, 1, width], whose halves are equal. */
export function rotaryTables(
  angles: Float32Array,
  positions: number,
): { cos: Float32Array; sin: Float32Array } {
  const width = angles.length / positions;
  const half = width / 2;
  const [cos, sin] = [new Float32Array(positions * half), new Float32Array(positions * half)];
  for (let p = 0; p < positions; p++)
    for (let i = 0; i < half; i++) {
      const angle = angles[p * width + i] as number;
      cos[p * half + i] = cosf(angle);
      sin[p * half + i] = sinf(angle);
    }
  return { cos, sin };
}
