// The largest magnitude of stored values, as bits. NaN and infinity rank above every finite value.

import { Wide } from "../contract";

/** The largest bit pattern among `count` elements of a Wide type, without sign bits; 0 if there are no elements. */
export function largestBits(src: usize, type: u32, count: usize): u32 {
  let largest: u32 = 0;
  let i: usize = 0;
  if (type === Wide.F32) {
    const magnitude = i32x4.splat(0x7fffffff);
    let max = i32x4.splat(0);
    for (const vectorCount = count & ~3; i < vectorCount; i += 4)
      max = i32x4.max_u(max, v128.and(v128.load(src + (i << 2)), magnitude));
    const two = i32x4.max_u(max, i64x2.shuffle(max, max, 1, 1));
    largest = <u32>i32x4.extract_lane(i32x4.max_u(two, i32x4.shuffle(two, two, 1, 1, 1, 1)), 0);
    for (; i < count; ++i) largest = umax(largest, load<u32>(src + (i << 2)) & 0x7fffffff);
    return largest;
  }
  const magnitude = i16x8.splat(0x7fff);
  let max = i16x8.splat(0);
  let oddMax = i16x8.splat(0);
  for (const vectorCount = count & ~15; i < vectorCount; i += 16) {
    max = i16x8.max_u(max, v128.and(v128.load(src + (i << 1)), magnitude));
    oddMax = i16x8.max_u(oddMax, v128.and(v128.load(src + (i << 1), 16), magnitude));
  }
  max = i16x8.max_u(max, oddMax);
  const wide = i32x4.max_u(i32x4.extend_low_i16x8_u(max), i32x4.extend_high_i16x8_u(max));
  const two = i32x4.max_u(wide, i64x2.shuffle(wide, wide, 1, 1));
  largest = <u32>i32x4.extract_lane(i32x4.max_u(two, i32x4.shuffle(two, two, 1, 1, 1, 1)), 0);
  for (; i < count; ++i) largest = umax(largest, <u32>load<u16>(src + (i << 1)) & 0x7fff);
  return largest;
}

function umax(a: u32, b: u32): u32 {
  return a > b ? a : b;
}
