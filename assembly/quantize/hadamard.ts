// The random Hadamard transform of 16 bf16 values: y = x * diag(signs) * H16 / 4. The result is bitwise equal to one
// BF16 tensor-core step of Hopper with a zero accumulator. The terms of an output are ±x[i] / 4. Let emax be the
// largest exponent of a term, but at least -126. The tensor core truncates each term toward zero to a multiple of
// 2^(emax - 25), adds the terms exactly, and truncates the sum to 24 significant bits. The sum is then rounded to bf16.
// All 16 outputs have the same emax. Therefore the code truncates each x once, to an integer in units of 2^(emax - 25),
// and computes the sums by an integer butterfly.

import { Wide } from "../contract";
import { narrow } from "../core/wide";
import { amaxRun } from "./amax";
import { openPanel, PANEL, PANEL_BYTES, Panel } from "./panel";

/** The number of rows of a panel. */
const HEIGHT: i32 = 16;
/** The number of columns of a panel. */
const WIDTH: i32 = PANEL / HEIGHT;

/** Negates the lanes of v in which `mask` is all ones. */
function negateWhere(v: v128, mask: v128): v128 {
  return i32x4.sub(v128.xor(v, mask), mask);
}

/**
 * The butterfly within four lanes, with strides 1 and 2. `odd` is all ones in lanes 1 and 3, `upper` in lanes 2 and 3.
 */
function butterflyLanes(v: v128, odd: v128, upper: v128): v128 {
  const w = i32x4.add(i32x4.shuffle(v, v, 1, 0, 3, 2), negateWhere(v, odd));
  return i32x4.add(i32x4.shuffle(w, w, 2, 3, 0, 1), negateWhere(w, upper));
}

/**
 * Returns sum * 2^(emax - 25), truncated to 24 significant bits and then rounded to nearest even to bf16, as f32.
 * `scale` is 2^emax.
 */
function finish(sum: v128, dropMask: v128, scale: v128): v128 {
  const sign = i32x4.shr_s(sum, 31);
  // clears the bits of the sum that are worth less than 2^-149, so that the scaling below is exact
  const magnitude = v128.and(negateWhere(sum, sign), dropMask);
  const nearest = f32x4.convert_i32x4_s(magnitude);
  // -1 in the lanes where the conversion rounded up; adding it gives the next lower f32
  const roundedUp = i32x4.gt_s(i32x4.trunc_sat_f32x4_s(nearest), magnitude);
  const y = f32x4.mul(
    f32x4.mul(i32x4.add(nearest, roundedUp), f32x4.splat(reinterpret<f32>(0x33000000))),
    scale,
  ); // 2^-25
  const odd = v128.and(i32x4.shr_u(y, 16), i32x4.splat(1));
  const rounded = i32x4.add(i32x4.add(y, i32x4.splat(0x7fff)), odd);
  const negative = v128.and(v128.and(sign, i32x4.splat(0x80000000)), i32x4.ne(magnitude, i32x4.splat(0)));
  return v128.or(v128.and(rounded, i32x4.splat(0xffff0000)), negative);
}

/**
 * Returns x / 4 of four values as integers in units of 2^(emax - 25), truncated and with their signs applied. `scale`
 * is 2^-emax, and `up` is 2^23.
 */
function toGrid(x: usize, scale: v128, up: v128, signs: v128): v128 {
  const steps = i32x4.trunc_sat_f32x4_s(f32x4.mul(f32x4.mul(v128.load(x), scale), up));
  return negateWhere(steps, signs);
}

/** All ones in the lanes whose bit in `bits` is set. */
function laneMask(bits: u32): v128 {
  return i32x4.ne(v128.and(i32x4.splat(bits), i32x4(1, 2, 4, 8)), i32x4.splat(0));
}

/**
 * Transforms 16 finite f32, which hold bf16 values, in place. `largest` is the bit pattern of their largest magnitude.
 */
function transformFinite(x: usize, largest: u32, signMask: u32): void {
  const emax = max(<i32>(largest >> 23) - 129, -126);
  const scale = reinterpret<f32>((emax + 127) << 23);
  const inverse = f32x4.splat(reinterpret<f32>((127 - emax) << 23));
  const up = f32x4.splat(reinterpret<f32>((127 + 23) << 23));
  const drop = max(-124 - emax, 0);
  const dropMask = i32x4.splat(-1 << drop);
  const odd = i32x4(0, -1, 0, -1);
  const upper = i32x4(0, 0, -1, -1);
  const a = butterflyLanes(toGrid(x, inverse, up, laneMask(signMask)), odd, upper);
  const b = butterflyLanes(toGrid(x + 16, inverse, up, laneMask(signMask >> 4)), odd, upper);
  const c = butterflyLanes(toGrid(x + 32, inverse, up, laneMask(signMask >> 8)), odd, upper);
  const d = butterflyLanes(toGrid(x + 48, inverse, up, laneMask(signMask >> 12)), odd, upper);
  const ab = i32x4.add(a, b);
  const cd = i32x4.add(c, d);
  const apart = i32x4.sub(a, b);
  const other = i32x4.sub(c, d);
  const s = f32x4.splat(scale);
  v128.store(x, finish(i32x4.add(ab, cd), dropMask, s));
  v128.store(x, finish(i32x4.add(apart, other), dropMask, s), 16);
  v128.store(x, finish(i32x4.sub(ab, cd), dropMask, s), 32);
  v128.store(x, finish(i32x4.sub(apart, other), dropMask, s), 48);
}

/** Transforms 16 f32 in place, if some are infinite or NaN. Finite terms do not affect the result. */
function transformSpecial(x: usize, signMask: u32): void {
  let infinite: u32 = 0;
  let negative: u32 = 0;
  let hasNaN = false;
  for (let i: u32 = 0; i < 16; ++i) {
    const bits = load<u32>(x + (i << 2));
    if ((bits & 0x7fffffff) > 0x7f800000) hasNaN = true;
    if ((bits & 0x7fffffff) === 0x7f800000) infinite |= 1 << i;
    negative |= (bits >> 31) << i;
  }
  negative ^= signMask;
  for (let column: u32 = 0; column < 16; ++column) {
    let minus = false;
    let plus = false;
    for (let i: u32 = 0; i < 16; ++i) {
      if (!((infinite >> i) & 1)) continue;
      if ((((negative >> i) ^ popcnt(i & column)) & 1) !== 0) minus = true;
      else plus = true;
    }
    const undefinedSum = hasNaN || (plus && minus);
    store<u32>(x + (column << 2), undefinedSum ? 0x7fff0000 : minus ? 0xff800000 : 0x7f800000);
  }
}

/**
 * Transforms each 16 consecutive values of `count` f32 in place. The values are bf16 numbers. Bit i of `signMask`
 * negates element i of 16.
 */
export function transformRun(x: usize, count: i32, signMask: u32): void {
  for (const end = x + ((<usize>count) << 2); x < end; x += 64) {
    const m01 = i32x4.max_u(i32x4.shl(v128.load(x), 1), i32x4.shl(v128.load(x, 16), 1));
    const m23 = i32x4.max_u(i32x4.shl(v128.load(x, 32), 1), i32x4.shl(v128.load(x, 48), 1));
    const m = i32x4.max_u(m01, m23);
    const low = max<u32>(i32x4.extract_lane(m, 0), i32x4.extract_lane(m, 1));
    const high = max<u32>(i32x4.extract_lane(m, 2), i32x4.extract_lane(m, 3));
    const largest = max(low, high) >> 1;
    if (largest < 0x7f800000) transformFinite(x, largest, signMask);
    else transformSpecial(x, signMask);
  }
}

/** The arguments of `hadamardAmax`. */
@unmanaged
class HadamardAmaxTask {
  src: usize;
  rows: u32;
  columns: u32;
  transposed: bool;
  signMask: u32;
}

/** The arguments of `hadamard`. */
@unmanaged
class HadamardTask extends HadamardAmaxTask {
  dst: usize;
}

/** Prepares a panel, which is at the beginning of the scratch memory and is followed by its buffer. */
function panelOf(task: HadamardAmaxTask, scratch: usize): Panel {
  const panel = changetype<Panel>(scratch);
  panel.src = task.src;
  panel.srcType = Wide.Bf16;
  panel.rows = task.rows;
  panel.columns = task.columns;
  panel.transposed = task.transposed;
  panel.buffer = scratch + PANEL_BYTES;
  return panel;
}

/**
 * Computes rows [begin, end) of the transform of a [rows, columns] bf16 matrix, as bf16; `columns` is a multiple of 16.
 * The matrix is `src` or, if `transposed`, the transpose of `src`, which is then [columns, rows].
 */
export function hadamard(task: HadamardTask, scratch: usize, begin: u32, end: u32): void {
  const panel = panelOf(task, scratch);
  const columns = task.columns;
  for (let r = begin; r < end; r += HEIGHT) {
    const height = <i32>min<u32>(HEIGHT, end - r);
    panel.row = r;
    panel.height = height;
    for (let c: u32 = 0; c < columns; c += WIDTH) {
      const width = <i32>min<u32>(WIDTH, columns - c);
      openPanel(panel, c, width);
      transformRun(panel.values, height * width, task.signMask);
      for (let i = 0; i < height; ++i) {
        const row = panel.values + ((<usize>(i * width)) << 2);
        narrow(row, task.dst, Wide.Bf16, <usize>(r + i) * columns + c, width);
      }
    }
  }
}

/** max |y| over rows [begin, end) of the output of `hadamard`, NaN ignored. */
export function hadamardAmax(task: HadamardAmaxTask, scratch: usize, begin: u32, end: u32): f32 {
  const panel = panelOf(task, scratch);
  const columns = task.columns;
  let largest: f32 = 0;
  for (let r = begin; r < end; r += HEIGHT) {
    const height = <i32>min<u32>(HEIGHT, end - r);
    panel.row = r;
    panel.height = height;
    for (let c: u32 = 0; c < columns; c += WIDTH) {
      const width = <i32>min<u32>(WIDTH, columns - c);
      openPanel(panel, c, width);
      transformRun(panel.values, height * width, task.signMask);
      largest = max(largest, amaxRun(panel.values, height * width));
    }
  }
  return largest;
}
