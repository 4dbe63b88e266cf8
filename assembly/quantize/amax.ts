// The largest magnitudes of runs and of blocks of f32. NaN is ignored: pmax(m, v) is m if v is NaN.

import { asF32 } from "../core/wide";

const RUN: i32 = 2048;

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
    m0 = f32x4.pmax(m0, f32x4.abs(v128.load(x + ((<usize>i) << 2))));
    m1 = f32x4.pmax(m1, f32x4.abs(v128.load(x + ((<usize>i) << 2), 16)));
  }
  const m = f32x4.pmax(m0, m1);
  const even = max(f32x4.extract_lane(m, 0), f32x4.extract_lane(m, 2));
  const odd = max(f32x4.extract_lane(m, 1), f32x4.extract_lane(m, 3));
  let largest = max(even, odd);
  for (; i < count; ++i) {
    const a = abs(load<f32>(x + ((<usize>i) << 2)));
    if (a > largest) largest = a;
  }
  return largest;
}

// Two integer maxima find the largest |x| faster than float operations: a signed maximum finds the largest positive value, and an
// unsigned one the most negative value. As an integer, NaN is above infinity. So if a result is above infinity, amaxRun
// recomputes it.

const INFINITY: i32 = 0x7f800000;

/**
 * Lane-wise bits of max |x| of one block, whose length is a multiple of 8. If the block has a NaN, some lane is above
 * infinity.
 */
function blockMax(x: usize, bytes: usize): v128 {
  let positive = i32x4.splat(0);
  let negative = i32x4.splat(0);
  for (const end = x + bytes; x < end; x += 32) {
    const v = v128.load(x);
    const w = v128.load(x, 16);
    positive = i32x4.max_s(positive, i32x4.max_s(v, w));
    negative = i32x4.max_u(negative, i32x4.max_u(v, w));
  }
  return i32x4.max_s(positive, v128.and(negative, i32x4.splat(0x7fffffff)));
}

/** Writes the amaxes of four consecutive blocks of `block` elements, a multiple of 8. */
function fourBlocks(x: usize, block: i32, dst: usize): void {
  const bytes = (<usize>block) << 2;
  const a = blockMax(x, bytes);
  const b = blockMax(x + bytes, bytes);
  const c = blockMax(x + 2 * bytes, bytes);
  const d = blockMax(x + 3 * bytes, bytes);
  const ab = i32x4.max_s(i32x4.shuffle(a, b, 0, 4, 1, 5), i32x4.shuffle(a, b, 2, 6, 3, 7));
  const cd = i32x4.max_s(i32x4.shuffle(c, d, 0, 4, 1, 5), i32x4.shuffle(c, d, 2, 6, 3, 7));
  const amaxes = i32x4.max_s(i64x2.shuffle(ab, cd, 0, 2), i64x2.shuffle(ab, cd, 1, 3));
  v128.store(dst, amaxes);
  if (v128.any_true(i32x4.gt_s(amaxes, i32x4.splat(INFINITY)))) {
    for (let i: usize = 0; i < 4; ++i) store<f32>(dst + (i << 2), amaxRun(x + i * bytes, block));
  }
}

/** Writes the amax of each block of `block` elements (a multiple of 8) to `dst`; the last block may be partial. */
export function blockAmaxes(x: usize, count: i32, block: i32, dst: usize): void {
  let i = 0;
  for (; i + 4 * block <= count; i += 4 * block) {
    fourBlocks(x + ((<usize>i) << 2), block, dst);
    dst += 16;
  }
  for (; i < count; i += block) {
    store<f32>(dst, amaxRun(x + ((<usize>i) << 2), min(block, count - i)));
    dst += 4;
  }
}

/** amaxes[i] = max(amaxes[i], |x[i]|), NaN ignored. */
function mergeRow(amaxes: usize, x: usize, count: i32): void {
  let i: usize = 0;
  for (const vectorBytes = (<usize>(count & -4)) << 2; i < vectorBytes; i += 16) {
    v128.store(amaxes + i, f32x4.pmax(v128.load(amaxes + i), f32x4.abs(v128.load(x + i))));
  }
  for (const end = (<usize>count) << 2; i < end; i += 4) {
    const a = abs(load<f32>(x + i));
    if (a > load<f32>(amaxes + i)) store<f32>(amaxes + i, a);
  }
}

/**
 * As mergeRow, for four rows `pitch` bytes apart, but a column with NaN gets a bit pattern above infinity. `count` is a
 * multiple of 4.
 */
function mergeFourRows(amaxes: usize, x: usize, pitch: usize, count: i32): void {
  const magnitude = i32x4.splat(0x7fffffff);
  for (const end = amaxes + ((<usize>count) << 2); amaxes < end; amaxes += 16) {
    const a = v128.load(x);
    const b = v128.load(x + pitch);
    const c = v128.load(x + 2 * pitch);
    const d = v128.load(x + 3 * pitch);
    const positive = i32x4.max_s(i32x4.max_s(a, b), i32x4.max_s(c, d));
    const negative = v128.and(i32x4.max_u(i32x4.max_u(a, b), i32x4.max_u(c, d)), magnitude);
    v128.store(amaxes, i32x4.max_s(v128.load(amaxes), i32x4.max_s(positive, negative)));
    x += 16;
  }
}

/** Whether one of `count` bit patterns (a multiple of 4) is above infinity. */
function hasNaN(amaxes: usize, count: i32): bool {
  let largest = i32x4.splat(0);
  for (const end = amaxes + ((<usize>count) << 2); amaxes < end; amaxes += 16) {
    largest = i32x4.max_s(largest, v128.load(amaxes));
  }
  return v128.any_true(i32x4.gt_s(largest, i32x4.splat(INFINITY)));
}

/**
 * Writes the amax of each of `count` columns over `height` rows, which are `pitch` elements apart. The array of amaxes
 * has room for a multiple of four.
 */
export function columnAmaxes(x: usize, pitch: u32, height: u32, count: i32, amaxes: usize): void {
  const bytes = (<usize>pitch) << 2;
  memory.fill(amaxes, 0, (<usize>count) << 2);
  let row: u32 = 0;
  if ((count & 3) === 0) {
    for (; row + 4 <= height; row += 4) mergeFourRows(amaxes, x + <usize>row * bytes, bytes, count);
    if (hasNaN(amaxes, count)) {
      memory.fill(amaxes, 0, (<usize>count) << 2);
      row = 0;
    }
  }
  for (; row < height; ++row) mergeRow(amaxes, x + <usize>row * bytes, count);
}

/**
 * Replaces each of `width` consecutive amaxes by the largest of them, group by group. The last group may be partial.
 */
export function spreadAmaxes(amaxes: usize, count: i32, width: i32): void {
  for (let i = 0; i < count; i += width) {
    const group = amaxes + ((<usize>i) << 2);
    const length = min(width, count - i);
    const largest = amaxRun(group, length);
    for (let j = 0; j < length; ++j) store<f32>(group + ((<usize>j) << 2), largest);
  }
}

/** amaxes[i] = max(amaxes[i], source[i]). No value may be NaN, and both arrays must have room for a multiple of four. */
export function mergeAmaxes(amaxes: usize, source: usize, count: i32): void {
  for (let i: usize = 0; i < (<usize>count) << 2; i += 16) {
    v128.store(amaxes + i, f32x4.pmax(v128.load(amaxes + i), v128.load(source + i)));
  }
}
