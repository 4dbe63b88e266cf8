// The arithmetic of datapaths: the fused dot-add of a tensor core, one step at a time, for any operands and any row of
// src/formats/datapath.ts; and correctly rounded f32 operations that WebAssembly lacks.
//
// A step adds n products to an accumulator c. Terms are aligned to the largest exponent emax, truncated toward zero to
// multiples of 2^(emax - F), and summed exactly; the sum is truncated to P fraction bits. All of this is exact in f64:
// a term is below 2^(F + 12) units, a step has at most 65 terms, and F is at most 35.

/** The exponent of an accumulator that is subnormal or the smallest normal f32. */
const F32_MIN_EXPONENT: i32 = -126;

/** 2^e, for e from -1022 to 1023. */
export function pow2(e: i32): f64 {
  return reinterpret<f64>((<u64>(e + 1023)) << 52);
}

/** floor(log2 |x|) of a normal f64; 1024 for infinities and NaN. */
export function exponentOf(x: f64): i32 {
  return (<i32>(reinterpret<u64>(x) >> 52) & 0x7ff) - 1023;
}

/** The exponent of the accumulator in the alignment. */
export function accumulatorExponent(c: f64, zeroAccumulator: i32): i32 {
  return c === 0 ? zeroAccumulator : max(exponentOf(c), F32_MIN_EXPONENT);
}

/** `sum` truncated toward zero to P fraction bits in f32's exponent range; overflow gives an infinity. */
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
 * `hi + lo` rounded to odd, where hi = fl(hi + lo): the neighbour of hi toward lo if hi is even and the sum is inexact,
 * else hi. Rounding the result to at most 51 bits then equals rounding the exact sum once.
 */
export function roundToOdd(hi: f64, lo: f64): f64 {
  const bits = reinterpret<i64>(hi);
  if (!(abs(lo) > 0) || bits & 1) return hi;
  return reinterpret<f64>(bits + (lo > 0 === hi > 0 ? 1 : -1));
}

/** The rounding error of `sum` = fl(a + b) (Knuth's TwoSum). */
export function sumError(a: f64, b: f64, sum: f64): f64 {
  const bPart = sum - a;
  return a - (sum - bPart) + (b - bPart);
}

/** fl(a * b + c), rounded once. */
export function fma32(a: f32, b: f32, c: f32): f32 {
  const product = <f64>a * <f64>b;
  const sum = product + <f64>c;
  return <f32>roundToOdd(sum, sumError(product, <f64>c, sum));
}

/** `x`, with every NaN replaced by 0x7fffffff. */
export function canonical(x: f32): f32 {
  return isNaN(x) ? reinterpret<f32>(0x7fffffff) : x;
}

/** As above, for four lanes. */
export function canonicalFour(x: v128): v128 {
  return v128.bitselect(x, i32x4.splat(0x7fffffff), v128.eq<f32>(x, x));
}
