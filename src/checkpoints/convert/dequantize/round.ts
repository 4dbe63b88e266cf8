/** Rounds values to a wide type, and counts the changes by rounding. */
import type { Changes } from "../changes/changes.js";

/** The types to which weights are dequantized. */
export const WIDE_TARGETS = ["bf16", "f32"] as const;

/** A type to which weights are dequantized. */
export type WideTarget = (typeof WIDE_TARGETS)[number];

const QUIET_NAN = 0x7fc0;
const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

/** Rounds the bits of an f32 to bf16, ties to even. */
function toBf16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return QUIET_NAN;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Returns a function that rounds to f32. For the target bf16, it then rounds to bf16. */
export function roundTo(target: WideTarget): (value: number) => number {
  if (target === "f32") return Math.fround;
  return (value) => {
    FLOAT[0] = value;
    WORD[0] = toBf16(WORD[0] as number) << 16;
    return FLOAT[0] as number;
  };
}

/** Rounds values to f32, and for the target bf16 then to bf16, ties to even. Returns the bytes, little endian. */
export function encodeWide(target: WideTarget, values: Float64Array, changes: Changes): Uint8Array {
  const floats = Float32Array.from(values);
  if (target === "f32") {
    for (let i = 0; i < floats.length; i++) changes.add(values[i] ?? 0, floats[i] ?? 0);
    return new Uint8Array(floats.buffer);
  }
  const bitPatterns = new Uint32Array(floats.buffer);
  const halves = new Uint16Array(bitPatterns.length);
  for (let i = 0; i < bitPatterns.length; i++) {
    const half = toBf16(bitPatterns[i] as number);
    halves[i] = half;
    WORD[0] = half << 16;
    changes.add(values[i] ?? 0, FLOAT[0] as number);
  }
  return new Uint8Array(halves.buffer);
}
