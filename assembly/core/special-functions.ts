// The instructions ex2.approx.ftz.f32 and tanh.approx.f32 of an H100 and an H200, to the bit (numerics.md §7.11). The argument
// of a function selects a row (c0, c1, c2), and its lower 17 bits y are the variable of a quadratic in integers.
import { EX2_BIAS, EX2_ROWS, TANH_HIGHEST, TANH_LOWEST, TANH_ROWS, TANH_SETS } from "./special-rows.gen";

/** Twice the square of y, four lanes: the sum of y >> (18 - i) over the set bits i of y. y has 17 bits. */
function doubledSquares(y: v128): v128 {
  let sum = i32x4.splat(0);
  for (let i = 2; i < 17; i++) {
    const isSet = i32x4.shr_s(i32x4.shl(y, 31 - i), 31);
    sum = i32x4.add(sum, v128.and(isSet, i32x4.shr_u(y, 18 - i)));
  }
  return sum;
}

/**
 * 2^x in four f32 lanes. The significand is (2^13 c0 + c1 y + c2 sq(y) + bias) >> 15. To fit 32 bits, c1 (y >> 2) is computed
 * separately, and the other terms are divided by 4 first. The parts of c1 y and c0 that are multiples of 4 lose nothing.
 */
export function ex2Four(x: v128): v128 {
  const magnitude = v128.and(x, i32x4.splat(0x7fffffff));
  const exponent = i32x4.shr_u(magnitude, 23);
  const normal = i32x4.gt_s(exponent, i32x4.splat(0));
  const negative = i32x4.shr_s(x, 31);
  // |x| as an integer in units of 2^-23. Conversion of a float truncates; the product is exact below 2^31.
  const fixed = i32x4.trunc_sat_f32x4_u(f32x4.mul(v128.and(magnitude, normal), f32x4.splat(8388608.0)));
  const fraction = v128.and(fixed, i32x4.splat(0x7fffff));
  const flipped = v128.andnot(negative, i32x4.eq(fraction, i32x4.splat(0)));
  let n = i32x4.shr_u(fixed, 23);
  n = i32x4.add(i32x4.sub(v128.xor(n, negative), negative), flipped);
  const argument = v128.xor(fraction, v128.and(flipped, i32x4.splat(0x7fffff)));
  const y = v128.and(argument, i32x4.splat(0x1ffff));
  const rowOffsets = i32x4.shl(i32x4.shr_u(argument, 17), 4);
  const row0 = v128.load(EX2_ROWS + <usize>i32x4.extract_lane(rowOffsets, 0));
  const row1 = v128.load(EX2_ROWS + <usize>i32x4.extract_lane(rowOffsets, 1));
  const row2 = v128.load(EX2_ROWS + <usize>i32x4.extract_lane(rowOffsets, 2));
  const row3 = v128.load(EX2_ROWS + <usize>i32x4.extract_lane(rowOffsets, 3));
  const low01 = v128.shuffle<i32>(row0, row1, 0, 4, 1, 5);
  const low23 = v128.shuffle<i32>(row2, row3, 0, 4, 1, 5);
  const c0 = v128.shuffle<i64>(low01, low23, 0, 2);
  const c1 = v128.shuffle<i64>(low01, low23, 1, 3);
  const c2 = v128.shuffle<i64>(
    v128.shuffle<i32>(row0, row1, 2, 6, 3, 7),
    v128.shuffle<i32>(row2, row3, 2, 6, 3, 7),
    0,
    2,
  );
  const square = i32x4.shr_u(doubledSquares(y), 1);
  const three = i32x4.splat(3);
  let smallTerms = i32x4.add(i32x4.mul(c1, v128.and(y, three)), i32x4.mul(c2, square));
  smallTerms = i32x4.add(i32x4.add(smallTerms, i32x4.splat(EX2_BIAS)), i32x4.shl(v128.and(c0, three), 13));
  const sum = i32x4.add(i32x4.mul(c1, i32x4.shr_u(y, 2)), i32x4.shr_u(smallTerms, 2));
  const z = i32x4.add(i32x4.shr_u(c0, 2), i32x4.shr_u(sum, 13));
  return finishEx2(x, exponent, negative, n, z);
}

/** 2^n z / 2^23 with the special cases of ex2, where z is from 2^23 to 2^24. */
function finishEx2(x: v128, exponent: v128, negative: v128, n: v128, z: v128): v128 {
  // z = 2^24 carries into the exponent, as the sum of the two fields does
  const field = i32x4.add(i32x4.shl(i32x4.add(n, i32x4.splat(126)), 23), z);
  const biased = i32x4.add(i32x4.add(n, i32x4.splat(126)), i32x4.shr_u(z, 23));
  let result = v128.and(field, i32x4.gt_s(biased, i32x4.splat(0)));
  const infinity = i32x4.splat(0x7f800000);
  result = v128.bitselect(infinity, result, i32x4.ge_s(biased, i32x4.splat(255)));
  const large = i32x4.ge_s(exponent, i32x4.splat(134));
  result = v128.bitselect(v128.andnot(infinity, negative), result, large);
  return v128.bitselect(result, i32x4.splat(0x7fffffff), f32x4.eq(x, x));
}

/** 2^x of one f32. */
export function ex2(x: f32): f32 {
  return f32x4.extract_lane(ex2Four(f32x4.splat(x)), 0);
}

/** The hyperbolic tangent of one f32. */
export function tanh(x: f32): f32 {
  if (isNaN(x)) return reinterpret<f32>(0x7fffffff);
  const magnitude = reinterpret<u32>(x) & 0x7fffffff;
  const exponent = <i32>(magnitude >> 23);
  if (exponent < TANH_LOWEST) return x;
  if (exponent > TANH_HIGHEST) return copysign<f32>(1, x);
  const set = TANH_SETS + ((<usize>(exponent - TANH_LOWEST)) << 4);
  const argument = (magnitude & 0x7fffff) >> load<u32>(set, 4);
  const row = TANH_ROWS + ((<usize>(load<u32>(set) + (argument >> 17))) << 4);
  const y = argument & 0x1ffff;
  const square = <i64>(i32x4.extract_lane(doubledSquares(i32x4.splat(y)), 0) >> 1);
  const shift = <i64>load<i32>(set, 12);
  const quadratic = (<i64>load<i32>(row, 8) * square) << (shift + 1);
  const total = ((<i64>load<i32>(row)) << 15) + ((<i64>load<i32>(row, 4) * <i64>y) << shift) + quadratic;
  const lead = 63 - <i32>clz(total);
  const significand = <u32>(lead > 23 ? total >> (lead - 23) : total << (23 - lead));
  const biased = <u32>(127 + lead - load<i32>(set, 8));
  return reinterpret<f32>(((biased - 1) << 23) + significand + (reinterpret<u32>(x) & 0x80000000));
}
