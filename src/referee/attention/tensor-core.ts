/**
 * Sums of products as Hopper's tensor cores compute them for bf16 and f16 (docs/datapath.md §1, `hopper-half`), from any
 * accumulator.
 */
import { DATAPATHS } from "../../formats/datapath.js";
import { MIN_NORMAL } from "../float32.js";

const { alignBits, zeroAccumulator } = DATAPATHS["hopper-half"].dotAdd;

/** The exponent of a factor of zero. It is so small that a product with it never has the largest exponent. */
const ZERO_EXPONENT = -10_000;
const MIN_EXPONENT = -126;

const double = new Float64Array(1);
const halves = new Uint32Array(double.buffer);
const LOW_WORD = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? 0 : 1;
const single = new Float32Array(1);
const word = new Uint32Array(single.buffer);

/** Powers of two: element e is 2^(e - `CENTER`). */
const CENTER = 512;
const POWERS = Float64Array.from({ length: 2 * CENTER }, (_, e) => 2 ** (e - CENTER));

/** floor(log2 |x|) of an f32, but at least -126. */
function flooredExponent(x: number): number {
  single[0] = x;
  return Math.max((((word[0] as number) >>> 23) & 0xff) - 127, MIN_EXPONENT);
}

/** Truncates toward zero to 24 significant bits, or to a multiple of 2^-149. A zero becomes +0. */
function truncate(x: number): number {
  if (Math.abs(x) < MIN_NORMAL) return Math.trunc(x * 2 ** 149) * 2 ** -149 + 0;
  double[0] = x;
  halves[LOW_WORD] = (halves[LOW_WORD] as number) & 0xe0000000;
  return Math.fround(double[0]);
}

/** Factors of a sum of products, with the exponents by which a tensor core aligns them. */
export interface Line {
  readonly values: Float32Array;
  readonly exponents: Int16Array;
}

/** Divides `values` into lines of `length` factors. `minimum` is the smallest exponent of the format. */
export function toLines(values: Float32Array, length: number, minimum: number): readonly Line[] {
  const exponents = Int16Array.from(values, (x) =>
    x === 0 ? ZERO_EXPONENT : Math.max(flooredExponent(x), minimum),
  );
  return Array.from({ length: values.length / length }, (_, i) => ({
    values: values.subarray(i * length, (i + 1) * length),
    exponents: exponents.subarray(i * length, (i + 1) * length),
  }));
}

/** The tensor core's instruction `mma` with `depth` products in a step: 16 for m16n8k16, 8 for m16n8k8. */
export class TensorCore {
  constructor(readonly depth: 8 | 16) {}

  /** Adds the products of the factors of two lines of one length to an f32 accumulator, step by step. */
  chain(accumulator: number, a: Line, b: Line): number {
    const { values: aValues, exponents: aExponents } = a;
    const { values: bValues, exponents: bExponents } = b;
    const { length } = aValues;
    let sum = accumulator;
    for (let start = 0; start < length; start += this.depth) {
      const end = Math.min(start + this.depth, length);
      let largest = sum === 0 ? zeroAccumulator : flooredExponent(sum);
      for (let k = start; k < end; k++) {
        const exponent = (aExponents[k] as number) + (bExponents[k] as number);
        if (exponent > largest) largest = exponent;
      }
      const inverse = POWERS[CENTER + alignBits - largest] as number;
      let total = Math.trunc(sum * inverse);
      for (let k = start; k < end; k++)
        total += Math.trunc((aValues[k] as number) * (bValues[k] as number) * inverse);
      sum = truncate(total * (POWERS[CENTER + largest - alignBits] as number));
    }
    return sum;
  }
}
