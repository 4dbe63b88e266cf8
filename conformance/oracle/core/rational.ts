/**
 * Exact rational numbers, and f32 arithmetic defined as "the exact result, rounded once".
 *
 * An f32 value is a JS number that f32 can hold; every f32 operation here takes and returns such numbers.
 * NaN is one class. Zeros, infinities and NaN follow IEEE 754, whose rules JS numbers obey.
 */

/** num / den with den > 0, not necessarily in lowest terms. */
export interface Rational {
  readonly num: bigint;
  readonly den: bigint;
}

/**
 * The set of values of a binary floating-point type: significands with `fractionBits`, exponents min to max, and
 * infinity beyond.
 */
export interface BinaryFloat {
  readonly fractionBits: number;
  readonly minExponent: number;
  readonly maxExponent: number;
}

export const F32: BinaryFloat = { fractionBits: 23, minExponent: -126, maxExponent: 127 };
export const BF16: BinaryFloat = { fractionBits: 7, minExponent: -126, maxExponent: 127 };
export const F16: BinaryFloat = { fractionBits: 10, minExponent: -14, maxExponent: 15 };

export const FLT_MAX = fromBits(0x7f7fffff);

/** The bit pattern of an f32 value; NaN gives 0x7FC00000. */
export function bitsOf(x: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, x);
  return view.getUint32(0);
}

/** The f32 value of a bit pattern. */
export function fromBits(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits);
  return view.getFloat32(0);
}

export function rational(num: bigint, den = 1n): Rational {
  return den < 0n ? { num: -num, den: -den } : { num, den };
}

export function powerOfTwo(exponent: number): Rational {
  return exponent < 0 ? rational(1n, 1n << BigInt(-exponent)) : rational(1n << BigInt(exponent));
}

/** The exact value of a finite JS number. Throws RangeError for NaN and infinities. */
export function ofNumber(x: number): Rational {
  if (!Number.isFinite(x)) throw new RangeError(`ofNumber: ${x} is not a rational number`);
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, Math.abs(x));
  const field = view.getUint32(0) >>> 20;
  const fraction = view.getBigUint64(0) & 0xf_ffff_ffff_ffffn;
  const significand = field === 0 ? fraction : fraction | (1n << 52n);
  return times(rational(x < 0 ? -significand : significand), powerOfTwo(Math.max(field, 1) - 1075));
}

export function plus(a: Rational, b: Rational): Rational {
  return rational(a.num * b.den + b.num * a.den, a.den * b.den);
}

export function minus(a: Rational, b: Rational): Rational {
  return plus(a, rational(-b.num, b.den));
}

export function times(a: Rational, b: Rational): Rational {
  return rational(a.num * b.num, a.den * b.den);
}

export function divide(a: Rational, b: Rational): Rational {
  return rational(a.num * b.den, a.den * b.num);
}

export function magnitude(a: Rational): Rational {
  return a.num < 0n ? rational(-a.num, a.den) : a;
}

/** -1, 0 or 1 if a is less than, equal to or greater than b. */
export function compare(a: Rational, b: Rational): number {
  const difference = a.num * b.den - b.num * a.den;
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

/** The integer part toward zero. */
export function truncate(a: Rational): bigint {
  return a.num / a.den;
}

/** floor(log2 a) of a positive number. */
export function floorLog2(a: Rational): number {
  const estimate = a.num.toString(2).length - a.den.toString(2).length;
  return compare(a, powerOfTwo(estimate)) < 0 ? estimate - 1 : estimate;
}

/** The JS number of an exact value that f64 can represent, such as any value of a BinaryFloat. */
export function toNumber(a: Rational): number {
  return Number(a.num) / Number(a.den);
}

/** Rounds to nearest, ties to even. Values past the largest finite one become infinity; underflow keeps the sign. */
export function roundToNearest(a: Rational, float: BinaryFloat): number {
  if (a.num === 0n) return 0;
  const exact = magnitude(a);
  const ulp = powerOfTwo(Math.max(floorLog2(exact), float.minExponent) - float.fractionBits);
  const units = divide(exact, ulp);
  const floor = truncate(units);
  const twiceRemainder = 2n * (units.num - floor * units.den);
  const roundsUp = twiceRemainder > units.den || (twiceRemainder === units.den && floor % 2n === 1n);
  const roundedValue = times(rational(roundsUp ? floor + 1n : floor), ulp);
  const overflows = compare(roundedValue, powerOfTwo(float.maxExponent + 1)) >= 0;
  const result = overflows ? Number.POSITIVE_INFINITY : toNumber(roundedValue);
  return a.num < 0n ? -result : result;
}

export function f32(a: Rational): number {
  return roundToNearest(a, F32);
}

export function bf16(a: Rational): number {
  return roundToNearest(a, BF16);
}

export function f16(a: Rational): number {
  return roundToNearest(a, F16);
}

function finite(...values: number[]): boolean {
  return values.every(Number.isFinite);
}

/** a * b in f32. Within f64's range the product of two 24-bit significands is exact, so this is one rounding. */
export function mul(a: number, b: number): number {
  return Math.fround(a * b);
}

/** a / b in f32. */
export function div(a: number, b: number): number {
  if (!finite(a, b) || a === 0 || b === 0) return a / b;
  return f32(divide(ofNumber(a), ofNumber(b)));
}

/** a + b in f32. */
export function add(a: number, b: number): number {
  return fma(a, 1, b);
}

/** a - b in f32. */
export function sub(a: number, b: number): number {
  return fma(a, 1, -b);
}

/**
 * a * b + c in f32, rounded once. The product of two f32 values is exact in f64, so JS decides the sign of a zero sum.
 */
export function fma(a: number, b: number, c: number): number {
  if (!finite(a, b, c)) return a * b + c;
  const exact = plus(times(ofNumber(a), ofNumber(b)), ofNumber(c));
  return exact.num === 0n ? a * b + c : f32(exact);
}
