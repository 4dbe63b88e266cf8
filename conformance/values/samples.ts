/** Fixed inputs, the same in every run and on every machine. */
import { bf16, f16, fromBits, ofNumber } from "../oracle/core/rational.js";

/** Every bf16 value, by code. */
export const EVERY_BF16: readonly number[] = Array.from({ length: 1 << 16 }, (_, code) =>
  fromBits(code * 65536),
);

export const SPECIALS: readonly number[] = [
  0,
  -0,
  1,
  -1,
  2 ** -149,
  -(2 ** -149),
  2 ** -126,
  Number.NaN,
  1 / 0,
  -1 / 0,
];

/** `count` u32 outputs of a xorshift generator. */
function words(count: number, seed = 0x9e3779b9): number[] {
  let x = seed;
  return Array.from({ length: count }, () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return x >>> 0;
  });
}

/** `count` f32 values with random bits: every exponent is equally likely, and NaN occurs. */
export function anyF32(count: number, seed?: number): number[] {
  return words(count, seed).map(fromBits);
}

/** `count` f32 values, uniform in [-range, range). */
export function evenF32(count: number, range: number, seed?: number): number[] {
  return words(count, seed).map((word) => Math.fround((word / 2 ** 31 - 1) * range));
}

/** The wide types by their number in the ABI: byte size, array of codes, value of a code, and rounding to a code. */
export const WIDE_TYPES = [
  { name: "f32", type: 0, round: (x: number) => x },
  { name: "bf16", type: 1, round: (x: number) => rounded(x, bf16) },
  { name: "f16", type: 2, round: (x: number) => rounded(x, f16) },
] as const;

function rounded(x: number, round: typeof bf16): number {
  return Number.isFinite(x) && x !== 0 ? round(ofNumber(x)) : x;
}
