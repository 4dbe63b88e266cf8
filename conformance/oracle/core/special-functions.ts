/** The special-function unit (numerics.md §7.11), on f32 values. All integers here are below 2^53. */
import {
  EX2,
  LG2,
  type Quadratic,
  RCP,
  RSQRT,
  SINE,
  SQRT_EVEN,
  SQRT_ODD,
  TANH,
} from "./special-function-tables.gen.js";

const word = new DataView(new ArrayBuffer(4));

/** The sign, the biased exponent and the fraction of an f32 value. */
function f32Fields(x: number): readonly [isNegative: boolean, exponent: number, fraction: number] {
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  return [bits >= 2 ** 31, (bits >>> 23) & 0xff, bits & 0x7fffff];
}

/** The square of y in units of 2^19, built from truncated partial products. */
function sq(y: number): number {
  let sum = 0;
  for (let i = 0; i <= 16; i++) if ((y >> i) & 1) sum += y >> (18 - i);
  return sum >> 1;
}

/** The function T of §7.11 for a table. */
function createQuadratic({ xBits, sqShift, rows, bias, ...shifts }: Quadratic): (a: number) => number {
  const unit0 = 2 ** shifts.c0Shift;
  const unit1 = 2 ** shifts.c1Shift;
  const unit2 = 2 ** shifts.c2Shift;
  return (a) => {
    const row = a >> xBits;
    const y = a & (2 ** xBits - 1);
    return (
      (rows.c0[row] as number) * unit0 +
      (rows.c1[row] as number) * y * unit1 +
      (rows.c2[row] as number) * sq(y << sqShift) * unit2 +
      bias
    );
  };
}

const quadraticOfEx2 = createQuadratic(EX2);
const quadraticOfLg2 = createQuadratic(LG2);
const quadraticOfRcp = createQuadratic(RCP);
const quadraticOfRsqrt = createQuadratic(RSQRT);
const quadraticOfSqrtEven = createQuadratic(SQRT_EVEN);
const quadraticOfSqrtOdd = createQuadratic(SQRT_ODD);
const quadraticOfSine = createQuadratic(SINE);

/** The binades of tanh by biased exponent, each with its function T. */
const BINADES = new Map(
  TANH.map(({ exponent, dropped, fractionBits, ...table }) => [
    exponent,
    { dropped, unit: 2 ** -fractionBits, quadratic: createQuadratic(table) },
  ]),
);

/** 2^x, as ex2.approx.ftz.f32 computes it. */
export function ex2(x: number): number {
  if (Number.isNaN(x)) return Number.NaN;
  const [isNegative, exponent, fraction] = f32Fields(x);
  if (exponent >= 134) return isNegative ? 0 : Number.POSITIVE_INFINITY;
  const significand = exponent === 0 ? 0 : 2 ** 23 + fraction;
  const v = Math.floor(significand * 2 ** (exponent - 127));
  let n = v >> 23;
  let a = v % 2 ** 23;
  if (isNegative) {
    n = a === 0 ? -n : -n - 1;
    a = a === 0 ? 0 : 2 ** 23 - 1 - a;
  }
  const z = Math.floor(quadraticOfEx2(a) / 2 ** 15);
  return withLimits(z * 2 ** (n - 23));
}

/** A positive result: +0 below 2^-126, infinity from 2^128. */
function withLimits(result: number): number {
  if (result < 2 ** -126) return 0;
  return result < 2 ** 128 ? result : Number.POSITIVE_INFINITY;
}

/** A number from 0 to below 2^128, truncated to the significand of an f32. */
function truncateFraction(x: number): number {
  const nearest = Math.fround(x);
  if (nearest <= x) return nearest;
  word.setFloat32(0, nearest);
  word.setUint32(0, word.getUint32(0) - 1);
  return word.getFloat32(0);
}

/** tanh x, as tanh.approx.f32 computes it. */
export function tanh(x: number): number {
  if (Number.isNaN(x)) return Number.NaN;
  const [isNegative, exponent, fraction] = f32Fields(x);
  if (exponent <= 118) return x;
  const sign = isNegative ? -1 : 1;
  if (exponent >= 130) return sign;
  const { dropped, unit, quadratic } = BINADES.get(exponent)!;
  return sign * truncateFraction(quadratic(fraction >> dropped) * unit);
}

/** 1 / x, as rcp.approx.ftz.f32 computes it. */
export function rcp(x: number): number {
  if (Number.isNaN(x)) return Number.NaN;
  const [isNegative, exponent, fraction] = f32Fields(x);
  const sign = isNegative ? -1 : 1;
  if (exponent === 0) return sign * Number.POSITIVE_INFINITY;
  if (exponent === 255) return sign * 0;
  const z = Math.floor(quadraticOfRcp(fraction) / 2 ** 15);
  return sign * withLimits(z * 2 ** (126 - exponent - 23));
}

/** The results of lg2, rsqrt and sqrt for arguments that are not positive, normal and finite, and undefined for others. */
function special(x: number, [ofZero, ofInfinity]: readonly [number, number]): number | undefined {
  if (Math.abs(x) < 2 ** -126) return x < 0 || Object.is(x, -0) ? -ofZero : ofZero;
  if (!(x > 0)) return Number.NaN;
  return x === Number.POSITIVE_INFINITY ? ofInfinity : undefined;
}

/** 1 / sqrt x, as rsqrt.approx.ftz.f32 computes it. */
export function rsqrt(x: number): number {
  const specialResult = special(x, [Number.POSITIVE_INFINITY, 0]);
  if (specialResult !== undefined) return specialResult;
  const [, exponent, fraction] = f32Fields(x);
  const half = Math.floor((exponent - 127) / 2);
  const a = fraction + (exponent - 127 - 2 * half) * 2 ** 23;
  const z = a === 0 ? 2 ** 24 : Math.floor(quadraticOfRsqrt(a) / 2 ** 16);
  return z * 2 ** (-1 - half - 23);
}

/** The square root of x, as sqrt.approx.ftz.f32 computes it. */
export function sqrt(x: number): number {
  const specialResult = special(x, [0, Number.POSITIVE_INFINITY]);
  if (specialResult !== undefined) return specialResult;
  const [, exponent, fraction] = f32Fields(x);
  const half = Math.floor((exponent - 127) / 2);
  const z =
    exponent - 127 === 2 * half
      ? Math.floor(quadraticOfSqrtEven(fraction) / 2 ** 17)
      : Math.floor(quadraticOfSqrtOdd(fraction) / 2 ** 16);
  return z * 2 ** (half - 23);
}

/** The binary logarithm of x, as lg2.approx.ftz.f32 computes it. */
export function lg2(x: number): number {
  if (Math.abs(x) < 2 ** -126) return Number.NEGATIVE_INFINITY;
  const specialResult = special(x, [0, Number.POSITIVE_INFINITY]);
  if (specialResult !== undefined) return specialResult;
  const [, exponent, fraction] = f32Fields(x);
  const t = x === 1 ? 0 : Math.floor(quadraticOfLg2(fraction) / 4);
  const r = t + (exponent - 127) * 2 ** 36;
  return r < 0 ? -truncateFraction((-r - 1) / 2 ** 36) : truncateFraction(r / 2 ** 36);
}

/** 1 / 2π as an f32. */
const INVERSE_TWO_PI = 0xa2f983 / 2 ** 26;

/** sin x, or cos x with `quarter` 1. */
function sine(x: number, quarter: number): number {
  if (!Number.isFinite(x)) return Number.NaN;
  const magnitude = Math.abs(x) < 2 ** -126 ? 0 : Math.abs(x);
  const product = truncateFraction(magnitude * INVERSE_TWO_PI);
  const p = product < 2 ** -126 ? 0 : product;
  const v = Math.floor(p * 2 ** 25) % 2 ** 25;
  const q = Math.floor(v / 2 ** 23) + quarter;
  const f = v % 2 ** 23;
  const result = truncateFraction(quadraticOfSine(q % 2 === 1 ? 2 ** 23 - 1 - f : f) / 2 ** 37);
  const isNegative = (quarter === 0 && f32Fields(x)[0]) !== q % 4 >= 2;
  return isNegative ? -result : result;
}

/** sin x, as sin.approx.ftz.f32 computes it. */
export const sin = (x: number): number => sine(x, 0);

/** cos x, as cos.approx.ftz.f32 computes it. */
export const cos = (x: number): number => sine(x, 1);
