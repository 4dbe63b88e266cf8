/** What a kernel may have done wrong with the random bits of stochastic rounding. */
import { type RandomBits, roundTo } from "../../../src/explain/rounding.js";
import type { ScalarFormat } from "../../../src/formats/scalar.js";
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import type { Coder } from "./coder.js";

/** The code of a value under these random bits. */
export function stochastically(value: number, format: ScalarFormat, random: RandomBits): number {
  return roundTo(value, { format, rounding: "stochastic", overflow: "saturate", random }).code;
}

/** Places that random bits are shifted by, besides the one that puts them under an f32's discarded mantissa bits. */
const SHIFTS = [1, 2, 4, 8, 9, 12, 16, 20, 24] as const;

/** Mistakes with random bits. That they are ignored is the mistake of truncation, which `coders` has. */
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
  // an f32 has 23 mantissa bits: those that the format drops take the low bits of the word
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
