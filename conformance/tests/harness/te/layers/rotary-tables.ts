/**
 * The cosines and sines of TransformerEngine's rotary embedding: `sincosf` of CUDA 13.0, as PTX has it, for angles below 105615.
 */
import { fma, mul } from "../../../../oracle/core/rational.js";

const bits = new DataView(new ArrayBuffer(4));
const f32 = (pattern: number): number => {
  bits.setUint32(0, pattern);
  return bits.getFloat32(0);
};

const TWO_BY_PI = f32(0x3f22f983);
/** -pi / 2 in three parts. */
const HALF_PI = [f32(0xbfc90fda), f32(0xb3a22168), f32(0xa7c234c5)] as const;
const COSINE = [f32(0x37cbac00), f32(0xbab607ed), f32(0x3d2aaabb), f32(0xbeffffff), 1] as const;
const SINE = [f32(0xb94d4153), f32(0x3c0885e4), f32(0xbe2aaaa8)] as const;

/** A polynomial in x, by Horner's rule with fused multiply-adds. */
const polynomial = ([first, ...rest]: readonly [number, ...number[]], x: number): number =>
  rest.reduce((sum, coefficient) => fma(sum, x, coefficient), first);

function sincos(angle: number): readonly [sin: number, cos: number] {
  const quadrant = Math.round(mul(angle, TWO_BY_PI));
  const t = HALF_PI.reduce((rest, part) => fma(quadrant, part, rest), angle);
  const square = mul(t, t);
  const cosine = polynomial(COSINE, square);
  const sine = fma(polynomial(SINE, square), mul(square, t), t);
  const [s, c] = quadrant & 1 ? [cosine, sine] : [sine, cosine];
  return [quadrant & 2 ? -s : s, (quadrant + 1) & 2 ? -c : c];
}

/** The tables [positions, width / 2] for angles [positions, 1, 1, width], whose halves are equal. */
export function rotaryTables(
  angles: Float32Array,
  positions: number,
): { cos: Float32Array; sin: Float32Array } {
  const width = angles.length / positions;
  const half = width / 2;
  const [cos, sin] = [new Float32Array(positions * half), new Float32Array(positions * half)];
  for (let p = 0; p < positions; p++)
    for (let i = 0; i < half; i++)
      [sin[p * half + i], cos[p * half + i]] = sincos(angles[p * width + i] as number);
  return { cos, sin };
}
