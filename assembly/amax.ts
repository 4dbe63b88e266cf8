// The largest magnitudes of runs and of blocks, f32. NaN counts as nothing: pmax(m, v) is m where v is NaN.

import { asF32 } from "./widen";

const RUN: i32 = 2048;

/** Bytes of scratch that `amax` needs. */
export function amaxScratch(): u32 {
  return RUN * 4;
}

/** max |src[i]| over [begin, end), NaN ignored; 0 for an empty range. */
export function amax(src: usize, srcType: u32, scratch: usize, begin: u32, end: u32): f32 {
  let largest: f32 = 0;
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    largest = max(largest, amaxRun(asF32(src, srcType, i, count, scratch), count));
  }
  return largest;
}

/** max |x| of `count` f32, NaN ignored. */
export function amaxRun(x: usize, count: i32): f32 {
  let m0 = f32x4.splat(0);
  let m1 = f32x4.splat(0);
  let i = 0;
  for (; i + 8 <= count; i += 8) {
    m0 = f32x4.pmax(m0, f32x4.abs(v128.load(x + (<usize>i << 2))));
    m1 = f32x4.pmax(m1, f32x4.abs(v128.load(x + (<usize>i << 2), 16)));
  }
  const m = f32x4.pmax(m0, m1);
  const even = max(f32x4.extract_lane(m, 0), f32x4.extract_lane(m, 2));
  const odd = max(f32x4.extract_lane(m, 1), f32x4.extract_lane(m, 3));
  let largest = max(even, odd);
  for (; i < count; ++i) {
    const a = abs(load<f32>(x + (<usize>i << 2)));
    if (a > largest) largest = a;
  }
  return largest;
}

/** Lane-wise max |x| of one block of a multiple of 8 elements. */
function blockMax(x: usize, bytes: usize): v128 {
  let m0 = f32x4.abs(v128.load(x));
  m0 = f32x4.pmax(f32x4.splat(0), m0);
  let m1 = f32x4.pmax(f32x4.splat(0), f32x4.abs(v128.load(x, 16)));
  for (const end = x + bytes; (x += 32) < end; ) {
    m0 = f32x4.pmax(m0, f32x4.abs(v128.load(x)));
    m1 = f32x4.pmax(m1, f32x4.abs(v128.load(x, 16)));
  }
  return f32x4.pmax(m0, m1);
}

/** Writes the amaxes of four consecutive blocks of a multiple of 8 elements. */
function fourBlocks(x: usize, bytes: usize, dst: usize): void {
  const a = blockMax(x, bytes);
  const b = blockMax(x + bytes, bytes);
  const c = blockMax(x + 2 * bytes, bytes);
  const d = blockMax(x + 3 * bytes, bytes);
  const ab = f32x4.pmax(i32x4.shuffle(a, b, 0, 4, 1, 5), i32x4.shuffle(a, b, 2, 6, 3, 7));
  const cd = f32x4.pmax(i32x4.shuffle(c, d, 0, 4, 1, 5), i32x4.shuffle(c, d, 2, 6, 3, 7));
  v128.store(dst, f32x4.pmax(i64x2.shuffle(ab, cd, 0, 2), i64x2.shuffle(ab, cd, 1, 3)));
}

/** Writes the amax of each block of `block` elements, a multiple of 8, to `dst`; the last block may be short. */
export function blockAmaxes(x: usize, count: i32, block: i32, dst: usize): void {
  const bytes = <usize>block << 2;
  let i = 0;
  for (; i + 4 * block <= count; i += 4 * block) {
    fourBlocks(x, bytes, dst);
    x += 4 * bytes;
    dst += 16;
  }
  for (; i < count; i += block) {
    store<f32>(dst, amaxRun(x, min(block, count - i)));
    x += bytes;
    dst += 4;
  }
}

/** amaxes[i] = max(amaxes[i], more[i]); none is NaN, and a multiple of four are there. */
export function mergeAmaxes(amaxes: usize, more: usize, count: i32): void {
  for (let i: usize = 0; i < <usize>count << 2; i += 16) {
    v128.store(amaxes + i, f32x4.pmax(v128.load(amaxes + i), v128.load(more + i)));
  }
}
