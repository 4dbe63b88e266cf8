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
  /** The number of finite values that became NaN or infinite. */
  notFinite = 0;
  /** The sums of squares of the finite differences, and of the values before them; 0 if nothing changed. */
  noise = 0;
  signal = 0;

  /** Adds an element, or `count` elements, whose value before and afterwards is the same. NaN that stays NaN does not change. */
  add(before: number, after: number, count = 1): void {
    this.elements += count;
    if (before === after || (Number.isNaN(before) && Number.isNaN(after))) {
      if (Number.isFinite(before)) this.signal += count * before * before;
      return;
    }
    this.changed += count;
    const difference = Math.abs(before - after);
    if (difference > this.max) this.max = difference;
    const relative = before === 0 ? Number.POSITIVE_INFINITY : difference / Math.abs(before);
    if (relative > this.relative) this.relative = relative;
    if (Number.isFinite(before) && !Number.isFinite(after)) this.notFinite += count;
    if (Number.isFinite(difference)) {
      this.noise += count * difference * difference;
      this.signal += count * before * before;
    }
  }

  /** The ratio of signal to noise in decibels, of finite differences; infinite without noise. */
  get sqnr(): number {
    return this.noise === 0 ? Number.POSITIVE_INFINITY : 10 * Math.log10(this.signal / this.noise);
  }
}

const QUIET_NAN = 0x7fc0;
const WORD = new Uint32Array(1);
const FLOAT = new Float32Array(WORD.buffer);

/** The bf16 of the bits of an f32, ties to even. */
function toBf16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return QUIET_NAN;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** What a value is in a wide type: rounded to f32 and, for bf16, that to bf16. */
export function roundTo(target: WideTarget): (value: number) => number {
  if (target === "f32") return Math.fround;
  return (value) => {
    FLOAT[0] = value;
    WORD[0] = toBf16(WORD[0] as number) << 16;
    return FLOAT[0] as number;
  };
}

/** Rounds values to f32 and, for bf16, that to bf16, ties to even; returns the bytes, little endian. */
export function encodeWide(target: WideTarget, values: Float64Array, changes: Changes): Uint8Array {
  const floats = Float32Array.from(values);
  if (target === "f32") {
    for (let i = 0; i < floats.length; i++) changes.add(values[i] ?? 0, floats[i] ?? 0);
    return new Uint8Array(floats.buffer);
  }
  const words = new Uint32Array(floats.buffer);
  const halves = new Uint16Array(words.length);
  for (let i = 0; i < words.length; i++) {
    const half = toBf16(words[i] as number);
    halves[i] = half;
    WORD[0] = half << 16;
    changes.add(values[i] ?? 0, FLOAT[0] as number);
  }
  return new Uint8Array(halves.buffer);
}
