/** Values as bytes of a wide type, and what rounding changed. */

/** The types that weights are dequantized to. */
export const WIDE_TARGETS = ["bf16", "f32"] as const;

/** A type that weights are dequantized to. */
export type WideTarget = (typeof WIDE_TARGETS)[number];

/** What a conversion changed. */
export class Changes {
  elements = 0;
  /** The number of elements whose value is not the one before. */
  changed = 0;
  /** The largest magnitude of a difference. */
  max = 0;
  /** The largest difference relative to the value before. */
  relative = 0;

  add(before: number, after: number): void {
    this.elements++;
    if (before === after || (Number.isNaN(before) && Number.isNaN(after))) return;
    this.changed++;
    const difference = Math.abs(before - after);
    if (difference > this.max) this.max = difference;
    const relative = before === 0 ? Number.POSITIVE_INFINITY : difference / Math.abs(before);
    if (relative > this.relative) this.relative = relative;
  }
}

const QUIET_NAN = 0x7fc0;

/** Rounds values to f32 and, for bf16, that to bf16, ties to even; returns the bytes, little endian. */
export function toWide(target: WideTarget, values: Float64Array, changes: Changes): Uint8Array {
  const floats = Float32Array.from(values);
  if (target === "f32") {
    for (let i = 0; i < floats.length; i++) changes.add(values[i] ?? 0, floats[i] ?? 0);
    return new Uint8Array(floats.buffer);
  }
  const words = new Uint32Array(floats.buffer);
  const halves = new Uint16Array(words.length);
  const word = new Uint32Array(1);
  const float = new Float32Array(word.buffer);
  for (let i = 0; i < words.length; i++) {
    const bits = words[i] ?? 0;
    const unordered = (bits & 0x7fffffff) > 0x7f800000;
    const half = unordered ? QUIET_NAN : ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
    halves[i] = half;
    word[0] = half << 16;
    changes.add(values[i] ?? 0, float[0] ?? 0);
  }
  return new Uint8Array(halves.buffer);
}
