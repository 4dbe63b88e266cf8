// A cheap f32 filter before the exact comparison in f64. Sixteen values under one scale are "settled" if none of their
// differences can exceed the maxima so far. Codes are 0, infinite, NaN, or have magnitudes of 2^-20 to 2^20 with at most eight
// significant bits.
//
// Let x be a value, p the exact product of its code and scale, and q the f32 nearest to p. If q differs from x, so does p. Since
// q is normal or zero, |x - p| <= d (1 + 2^-21) + 2^-23 |x|, where d is the f32 of |x - q|. If q equals p, the last term is 0.

import { addSquares, addTo, TallyAt } from "./tally";

/** For scales in this range every product is a normal f32, far from the smallest one. */
const MIN_SCALE: f32 = 2 ** -60;
const LARGEST: f32 = 2 ** 60;
/** The relative distance by which the f32 thresholds are below the exact ones. */
const MARGIN: f64 = 2 ** -19;
/** The error of a rounded product, relative to the value. */
export const ROUNDED: f32 = 2 ** -22;

/** A run of values and their codes, which are compared. */
@unmanaged
export class Run {
  x: usize;
  codes: usize;
  count: u32;
  /** The values of codes. */
  table: usize;
  /** The first `until` elements share the first scale, and each further `width` elements the next one. */
  scales: usize;
  until: u32;
  width: u32;
  /** The result of `preparePairs` if codes are pairs in blocks of a multiple of 16 elements, else 0. */
  pairContext: usize;
  tally: usize;
  /** The thresholds: `maxThreshold`, `relativeThreshold` and `exempted`. */
  max: v128;
  relative: v128;
  exempt: v128;
}

/** The size of a Run in bytes. */
export const RUN_BYTES: usize = 96;

/** Whether the filter supports a scale. */
export function isFiltered(scale: f32): bool {
  return abs(scale) >= MIN_SCALE && abs(scale) <= LARGEST;
}

/** The relative error of rounded products: 0 if the scale has at most 16 significant bits, so that all products are exact. */
export function roundedShare(scale: f32): f32 {
  return reinterpret<u32>(scale) & 0xff ? ROUNDED : 0;
}

/** A threshold in f32: a difference that does not exceed it does not exceed `max`. */
export function maxThreshold(max: f64): v128 {
  return f32x4.splat(max >= 2 ** -100 && max <= 2 ** 100 ? <f32>(max * (1 - MARGIN)) : 0);
}

/**
 * A threshold in f32: a quotient that does not exceed it does not exceed `relative`. If `relative` is 1 or more, values that
 * become zero (quotient 1) are exempt. Otherwise the threshold is at most 1/2, so that products with it stay below such values.
 */
export function relativeThreshold(relative: f64): v128 {
  const threshold = <f32>min<f64>(2 ** 60, max<f64>(0, relative * (1 - MARGIN) - 2 ** -22));
  return f32x4.splat(relative >= 1 ? threshold : min<f32>(threshold, 0.5));
}

/**
 * The product that is exempt from the comparison of quotients: zero if `relative` is at least 1, else NaN, which equals nothing.
 */
export function exempted(relative: f64): v128 {
  return f32x4.splat(relative >= 1 ? 0 : f32.NaN);
}

/** Four values from index `i` on. V is f32, or u16 for bf16. */
export function fourValues<V>(x: usize, i: u32): v128 {
  return sizeof<V>() === 2
    ? i32x4.shl(v128.load16x4_u(x + ((<usize>i) << 1)), 16)
    : v128.load(x + ((<usize>i) << 2));
}

/** The f32 values of four codes. */
function fourCodes(codes: usize, i: u32, table: usize): v128 {
  let four = v128.load32_zero(table + ((<usize>load<u8>(codes + i)) << 2));
  four = v128.load32_lane(table + ((<usize>load<u8>(codes + i, 1)) << 2), four, 1);
  four = v128.load32_lane(table + ((<usize>load<u8>(codes + i, 2)) << 2), four, 2);
  return v128.load32_lane(table + ((<usize>load<u8>(codes + i, 3)) << 2), four, 3);
}

/** The lanes whose quotient may exceed the largest one so far. */
export function isOpen(product: v128, difference: v128, magnitude: v128, relative: v128, exempt: v128): v128 {
  return v128.and(f32x4.gt(difference, f32x4.mul(magnitude, relative)), f32x4.ne(product, exempt));
}

/**
 * Compares sixteen values with one-byte codes. Returns the number of changed values and adds their squares to `tally`, or
 * returns -1 if the values are not settled.
 */
export function settledChanges<V>(run: Run, i: u32, scale: f32): i32 {
  const x = run.x;
  const codes = run.codes;
  const table = run.table;
  const max = run.max;
  const relative = run.relative;
  const exempt = run.exempt;
  const tally = run.tally;
  const scales = f32x4.splat(scale);
  const rounded = roundedShare(scale);
  const x0 = fourValues<V>(x, i);
  const x1 = fourValues<V>(x, i + 4);
  const x2 = fourValues<V>(x, i + 8);
  const x3 = fourValues<V>(x, i + 12);
  const p0 = f32x4.mul(fourCodes(codes, i, table), scales);
  const p1 = f32x4.mul(fourCodes(codes, i + 4, table), scales);
  const p2 = f32x4.mul(fourCodes(codes, i + 8, table), scales);
  const p3 = f32x4.mul(fourCodes(codes, i + 12, table), scales);
  const d0 = f32x4.abs(f32x4.sub(x0, p0));
  const d1 = f32x4.abs(f32x4.sub(x1, p1));
  const d2 = f32x4.abs(f32x4.sub(x2, p2));
  const d3 = f32x4.abs(f32x4.sub(x3, p3));
  const a0 = f32x4.abs(x0);
  const a1 = f32x4.abs(x1);
  const a2 = f32x4.abs(x2);
  const a3 = f32x4.abs(x3);
  // ignore NaN differences: pmax(m, v) is m if v is NaN
  const zero = f32x4.splat(0);
  const maxDifference = f32x4.pmax(f32x4.pmax(f32x4.pmax(f32x4.pmax(zero, d0), d1), d2), d3);
  const largest = f32x4.pmax(f32x4.pmax(f32x4.pmax(f32x4.pmax(zero, a0), a1), a2), a3);
  const bound = f32x4.add(
    f32x4.mul(maxDifference, f32x4.splat(1 + 4 * ROUNDED)),
    f32x4.mul(largest, f32x4.splat(rounded)),
  );
  const low = v128.or(isOpen(p0, d0, a0, relative, exempt), isOpen(p1, d1, a1, relative, exempt));
  const high = v128.or(isOpen(p2, d2, a2, relative, exempt), isOpen(p3, d3, a3, relative, exempt));
  const sum = f32x4.add(f32x4.add(d0, d1), f32x4.add(d2, d3));
  const exceeds = v128.or(f32x4.ne(sum, sum), v128.not(f32x4.le(bound, max)));
  if (v128.any_true(v128.or(exceeds, v128.or(low, high)))) return -1;
  const s0 = f32x4.eq(x0, p0);
  const s1 = f32x4.eq(x1, p1);
  const s2 = f32x4.eq(x2, p2);
  const s3 = f32x4.eq(x3, p3);
  const hasEqual = v128.any_true(v128.or(v128.or(s0, s1), v128.or(s2, s3)));
  // a rounded product may equal the value although the exact product does not
  if (hasEqual && rounded !== 0) return -1;
  const zeros = f64x2.splat(0);
  addTo(tally + TallyAt.Noise, addSquares(addSquares(addSquares(addSquares(zeros, d0), d1), d2), d3));
  addTo(tally + TallyAt.Signal, addSquares(addSquares(addSquares(addSquares(zeros, x0), x1), x2), x3));
  if (!hasEqual) return 16;
  const equalMask = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(s0, s1), i16x8.narrow_i32x4_s(s2, s3));
  return 16 - popcnt(i8x16.bitmask(equalMask));
}
