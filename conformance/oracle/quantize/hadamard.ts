/**
 * The random Hadamard transform of 16 bf16 values, as one BF16 tensor-core step of Hopper computes it (datapath.md §1,
 * §2).
 */
import {
  BF16,
  bf16,
  bitsOf,
  compare,
  divide,
  f32,
  floorLog2,
  magnitude,
  ofNumber,
  plus,
  powerOfTwo,
  type Rational,
  rational,
  times,
  toNumber,
  truncate,
} from "../core/rational.js";

const SIZE = 16;
const ALIGNMENT_BITS = 25;
const RESULT_BITS = 23;
/** If bit i is set, the sign of input i is flipped. */
const SIGN_MASK = 0xd7e8;
const QUARTER_EXPONENT = -2;
const ZERO = rational(0n);

/** Whether entry [r][c] of diag(d) * H16 / 4 is negative. */
function isNegative(r: number, c: number, signs: boolean): boolean {
  const bitCount = (r & c).toString(2).replaceAll("0", "").length;
  const isFlipped = signs && ((SIGN_MASK >> r) & 1) === 1;
  return (bitCount % 2 === 1) !== isFlipped;
}

/** The exponent of an operand. Subnormal numbers and zero have the exponent of the smallest normal number. */
function operandExponent(x: number): number {
  return x === 0 ? BF16.minExponent : Math.max(floorLog2(magnitude(ofNumber(x))), BF16.minExponent);
}

function truncateTo(a: Rational, unit: Rational): Rational {
  return times(rational(truncate(divide(a, unit))), unit);
}

/** Truncates to f32: 23 fraction bits, exponents from -126, infinity from 2^128. A zero result is +0. */
function f32TowardZero(sum: Rational): number {
  if (sum.num === 0n) return 0;
  if (compare(magnitude(sum), powerOfTwo(128)) >= 0) return sum.num < 0n ? -Infinity : Infinity;
  const exponent = Math.max(floorLog2(magnitude(sum)), -126);
  const truncatedSum = truncateTo(sum, powerOfTwo(exponent - RESULT_BITS));
  return truncatedSum.num === 0n ? 0 : toNumber(truncatedSum);
}

function dot(x: readonly number[], column: number, signs: boolean): number {
  const isNegated = x.map((_, r) => isNegative(r, column, signs));
  const signedInput = x.map((value, r) => (isNegated[r] ? -value : value));
  if (!signedInput.every(Number.isFinite)) return signedInput.reduce((sum, value) => sum + value, 0);
  const accumulatorExponent = -126;
  const exponents = x.map((value) => operandExponent(value) + QUARTER_EXPONENT);
  const unit = powerOfTwo(Math.max(accumulatorExponent, ...exponents) - ALIGNMENT_BITS);
  const products = signedInput.map((value) => times(ofNumber(value), rational(1n, 4n)));
  return f32TowardZero(products.map((product) => truncateTo(product, unit)).reduce(plus, ZERO));
}

/** x * diag(d) * H16 / 4 for 16 bf16 values x, as bf16 bit patterns. Without `signs`, d is all ones. */
export function rht16(x: readonly number[], signs = true): number[] {
  if (x.length !== SIZE) throw new RangeError(`rht16: ${x.length} values given, 16 needed`);
  return Array.from({ length: SIZE }, (_, column) => {
    const sum = dot(x, column, signs);
    if (Number.isNaN(sum)) return 0x7fff;
    const roundedSum = Number.isFinite(sum) ? bf16(ofNumber(sum)) : sum;
    return bitsOf(roundedSum) >>> 16;
  });
}

/** The inverse of `rht16` for 16 f32 values: each exact sum, rounded to f32. A sum of zero is +0. */
export function inverseRht16(y: readonly number[], signs = true): number[] {
  if (y.length !== SIZE) throw new RangeError(`inverseRht16: ${y.length} values given, 16 needed`);
  return Array.from({ length: SIZE }, (_, r) => {
    const signedOutput = y.map((value, c) => (isNegative(r, c, signs) ? -value : value));
    if (!signedOutput.every(Number.isFinite)) return signedOutput.reduce((sum, value) => sum + value, 0);
    const sum = signedOutput.map(ofNumber).reduce(plus, ZERO);
    return sum.num === 0n ? 0 : f32(times(sum, rational(1n, 4n)));
  });
}
