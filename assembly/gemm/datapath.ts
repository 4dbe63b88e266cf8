// The arithmetic of datapaths: the fused dot-add of a tensor core, one step at a time, for any operands and any row of
// src/formats/datapath.ts; and correctly rounded f32 operations that WebAssembly lacks.
//
// A step adds n products to an accumulator c. Let emax be the largest exponent of a term, F the number of alignment
// bits and P the number of fraction bits. Each term is truncated toward zero to a multiple of 2^(emax - F). The
// truncated terms are summed exactly. The sum is truncated to P fraction bits. All of this is exact in f64: a term is
// below 2^(F + 12) multiples of 2^(emax - F), a step has at most 65 terms, and F is at most 35.

import { highHalf, join } from "../core/math";

/** The exponent of a subnormal accumulator: the exponent of the smallest normal f32. */
const F32_MIN_EXPONENT: i32 = -126;

/** 2^e, for e from -1022 to 1023. */
export function pow2(e: i32): f64 {
  return reinterpret<f64>((<u64>(e + 1023)) << 52);
}

/** floor(log2 |x|) of a normal f64; 1024 for infinities and NaN. */
export function exponentOf(x: f64): i32 {
  return (<i32>(reinterpret<u64>(x) >> 52) & 0x7ff) - 1023;
}

/**
 * The exponent of the accumulator `c` as a term of a step. `zeroAccumulator` is the exponent of an accumulator of zero.
 */
export function accumulatorExponent(c: f64, zeroAccumulator: i32): i32 {
  return c === 0 ? zeroAccumulator : max(exponentOf(c), F32_MIN_EXPONENT);
}

/**
 * Returns `sum` truncated toward zero to `fractionBits` fraction bits in f32's exponent range. Overflow gives an
 * infinity.
 */
export function truncateSum(sum: f64, fractionBits: i32): f64 {
  const magnitude = abs(sum);
  if (magnitude >= pow2(128)) return copysign<f64>(Infinity, sum);
  if (magnitude < pow2(F32_MIN_EXPONENT)) {
    const grid = pow2(fractionBits - F32_MIN_EXPONENT);
    return trunc(sum * grid) / grid + 0.0;
  }
  return reinterpret<f64>(reinterpret<u64>(sum) & ((<u64>-1) << (52 - fractionBits)));
}

/**
 * Returns hi + lo rounded to odd at 53 significant bits; hi must be the f64 nearest to hi + lo. If hi is even and lo is
 * not 0, the result is the neighbour of hi in the direction of lo, else hi. Rounding the result to at most 51 bits
 * equals rounding the exact sum once.
 */
export function roundToOdd(hi: f64, lo: f64): f64 {
  const bits = reinterpret<i64>(hi);
  if (!(abs(lo) > 0) || bits & 1) return hi;
  return reinterpret<f64>(bits + (lo > 0 === hi > 0 ? 1 : -1));
}

/** The rounding error of `sum`, the f64 nearest to a + b (Knuth's TwoSum). */
export function sumError(a: f64, b: f64, sum: f64): f64 {
  const bPart = sum - a;
  return a - (sum - bPart) + (b - bPart);
}

/**
 * Returns a + b rounded to odd at 53 significant bits, lane by lane (see roundToOdd). Rounding this result to f32 gives
 * the f32 nearest to the exact sum.
 */
export function addToOdd(a: v128, b: v128): v128 {
  const sum = v128.add<f64>(a, b);
  const bPart = v128.sub<f64>(sum, a);
  const error = v128.add<f64>(v128.sub<f64>(a, v128.sub<f64>(sum, bPart)), v128.sub<f64>(b, bPart));
  const inexact = v128.gt<f64>(v128.abs<f64>(error), f64x2.splat(0));
  const one = i64x2.splat(1);
  const even = v128.eq<i64>(v128.and(sum, one), i64x2.splat(0));
  const step = v128.or(v128.shr<i64>(v128.xor(error, sum), 63), one);
  return v128.add<i64>(sum, v128.and(v128.and(inexact, even), step));
}

/** a * b + c, rounded to f32 once. */
export function fma32(a: f32, b: f32, c: f32): f32 {
  const product = <f64>a * <f64>b;
  const sum = product + <f64>c;
  return <f32>roundToOdd(sum, sumError(product, <f64>c, sum));
}

/** a * b + c of four f32 lanes, each rounded once. */
export function fmaFour(a: v128, b: v128, c: v128): v128 {
  const low = addToOdd(
    v128.mul<f64>(v128.promote_low<f32>(a), v128.promote_low<f32>(b)),
    v128.promote_low<f32>(c),
  );
  const high = addToOdd(
    v128.mul<f64>(v128.promote_low<f32>(highHalf(a)), v128.promote_low<f32>(highHalf(b))),
    v128.promote_low<f32>(highHalf(c)),
  );
  return join(low, high);
}
