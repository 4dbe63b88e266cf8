/** Mistakes with the random bits of stochastic rounding. */
import { type RandomBits, roundTo } from "../../../src/explain/rounding.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import type { Coder } from "./coder.js";

/** The code of a value under these random bits. */
export function stochastically(value: number, format: ScalarFormat, random: RandomBits): number {
  return roundTo(value, { format, rounding: "stochastic", overflow: "saturate", random }).code;
}

/** Shifts of random bits to try, besides the one that aligns them with the f32 mantissa bits that the format drops. */
const SHIFTS = [1, 2, 4, 8, 9, 12, 16, 20, 24] as const;

/** Mistakes with random bits. Ignoring them is truncation, which `coders` covers. */
export function stochasticCoders(format: ScalarFormat): readonly Coder[] {
  const changed = (
    words: string,
    change: (bits: number, width: number) => number,
    at: (index: number) => number = (index) => index,
  ): Coder => ({
    words,
    of: (value, { index, bitsOf }) => {
      const { bits, width } = bitsOf(at(index));
      return stochastically(value, format, { bits: change(bits, width), width });
    },
  });
  const same = (bits: number): number => bits;
  // the mantissa bits of an f32 that the format drops are compared with the low bits of the word
  const dropped = 23 - SCALAR_FORMATS[format].mantissaBits;
  return [
    changed(
      `the low ${dropped} random bits are added, not the high ones: random bits are not aligned with the fraction`,
      (bits, width) => (width === 32 ? (bits << (32 - dropped)) >>> 0 : bits),
    ),
    ...SHIFTS.flatMap((by) => [
      changed(
        `random bits are shifted right by ${by}: they are not aligned with the fraction`,
        (bits, width) => (by < width ? Math.floor(bits / 2 ** by) : bits),
      ),
      changed(
        `random bits are shifted left by ${by}: they are not aligned with the fraction`,
        (bits, width) => (by < width ? (bits * 2 ** by) % 2 ** width : bits),
      ),
    ]),
    changed(
      "elements are rounded up where random bits are below the fraction, not where the sum carries",
      (bits, width) => 2 ** width - 1 - bits,
    ),
    changed("every element has the random bits of the one after it", same, (index) => index + 1),
    changed("every element has the random bits of the one before it", same, (index) =>
      Math.max(index - 1, 0),
    ),
    changed("every element has the random bits of the first one", same, () => 0),
  ];
}
