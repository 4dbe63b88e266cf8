/** Exact sums and products, and one rounding to f32. */
import { dyadicOf } from "./binary.js";

/** The number significand * 2^exponent. */
export interface Dyadic {
  readonly significand: bigint;
  readonly exponent: number;
}

/** The exponents of the smallest normal f32 and of the smallest subnormal f32. */
const MIN_EXPONENT = -126;
const FRACTION_BITS = 23;

/** Converts a finite number exactly. */
export function dyadic(x: number): Dyadic {
  if (x === 0) return { significand: 0n, exponent: 0 };
  const { significand, exponent } = dyadicOf(x);
  return { significand: x < 0 ? -significand : significand, exponent };
}

/** Returns a * b. */
export function times(a: Dyadic, b: Dyadic): Dyadic {
  return { significand: a.significand * b.significand, exponent: a.exponent + b.exponent };
}

/** Returns the sum of numbers. */
export function sumOf(terms: readonly Dyadic[]): Dyadic {
  const exponent = terms.reduce((least, term) => Math.min(least, term.exponent), 0);
  let significand = 0n;
  for (const term of terms) significand += term.significand << BigInt(term.exponent - exponent);
  return { significand, exponent };
}

/** Rounds to the nearest f64, ties to even. The result must be a normal f64. */
export function nearest({ significand, exponent }: Dyadic): number {
  const half = Math.trunc(exponent / 2);
  return Number(significand) * 2 ** half * 2 ** (exponent - half);
}

/** Rounds to the nearest f32, ties to even. Zero gives +0. */
export function roundToF32({ significand, exponent }: Dyadic): number {
  if (significand === 0n) return 0;
  const negative = significand < 0n;
  const magnitude = negative ? -significand : significand;
  const top = magnitude.toString(2).length - 1 + exponent;
  const unit = Math.max(top, MIN_EXPONENT) - FRACTION_BITS;
  const drop = unit - exponent;
  const rounded = drop <= 0 ? magnitude << BigInt(-drop) : roundShift(magnitude, BigInt(drop));
  const value = Math.fround(Number(rounded) * 2 ** unit);
  return negative ? -value : value;
}

function roundShift(magnitude: bigint, drop: bigint): bigint {
  const truncated = magnitude >> drop;
  const rest = magnitude - (truncated << drop);
  const half = 1n << (drop - 1n);
  return rest > half || (rest === half && (truncated & 1n) === 1n) ? truncated + 1n : truncated;
}

/** Computes a * b + c of f32 numbers with one rounding. */
export function fma(a: number, b: number, c: number): number {
  // the product of two f32 numbers is exact in f64
  return roundSumToF32(a * b, c);
}

const f64 = new Float64Array(1);
const words = new Uint32Array(f64.buffer);

/** Rounds the exact sum of two f64 numbers to f32, once. An exact zero has the sign that f64 arithmetic gives it. */
export function roundSumToF32(p: number, q: number): number {
  const sum = p + q;
  if (!Number.isFinite(sum)) return Math.fround(sum);
  const part = sum - p;
  const error = p - (sum - part) + (q - part);
  if (error === 0) return Math.fround(sum);
  // rounding to odd first: f64 has more than two bits beyond f32, so the second rounding is then right
  f64[0] = sum;
  const [low, high] = [words[0] as number, words[1] as number];
  if ((low & 1) === 1) return Math.fround(sum);
  if (error > 0 === sum > 0) words[0] = low | 1;
  else {
    words[0] = low - 1;
    if (low === 0) words[1] = high - 1;
  }
  return Math.fround(f64[0]);
}

/** Prints a number as significand * 2^exponent with an odd significand. */
export function dyadicText({ significand, exponent }: Dyadic): string {
  if (significand === 0n) return "0";
  let [odd, shift] = [significand, exponent];
  while ((odd & 1n) === 0n) {
    odd >>= 1n;
    shift++;
  }
  return `${odd} * 2^${shift}`;
}
