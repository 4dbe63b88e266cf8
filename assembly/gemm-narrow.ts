// The dot-add step for 8-bit operands under F = P = 13, 16 columns at a time in f32x4, exact because a term
// is below 2^15 units of 2^(emax - 13) and at most 65 of them meet: every partial sum is an integer below 2^24.

import { alignBitsOf, fractionBitsOf } from "./gemm-task";

// Constants are loaded: V8 makes each literal anew, in three instructions, wherever it is used. The last is
// below the exponent of every product of two non-zeros, and keeps the scale of a step of zeros a finite f32.
const EXPONENT = memory.data<i32>([0xff, 0xff, 0xff, 0xff, 127, 127, 127, 127, -60, -60, -60, -60], 16);

/** The scales 2^(F - emax) of four rows and 16 columns, from the exponents of one step. */
function alignRows(xe: usize, we: usize, step: u32, state: usize, scales: usize, bias: i32): void {
  let m0 = i8x16.splat(-128);
  let m1 = m0;
  let m2 = m0;
  let m3 = m0;
  const x1 = xe + step;
  const x2 = x1 + step;
  const x3 = x2 + step;
  for (let k: usize = 0; k < step; k += 2) {
    const w = v128.load(we);
    const v = v128.load(we, 16);
    m0 = v128.max<i8>(m0, v128.add<i8>(w, v128.load_splat<i8>(xe + k)));
    m0 = v128.max<i8>(m0, v128.add<i8>(v, v128.load_splat<i8>(xe + k, 1)));
    m1 = v128.max<i8>(m1, v128.add<i8>(w, v128.load_splat<i8>(x1 + k)));
    m1 = v128.max<i8>(m1, v128.add<i8>(v, v128.load_splat<i8>(x1 + k, 1)));
    m2 = v128.max<i8>(m2, v128.add<i8>(w, v128.load_splat<i8>(x2 + k)));
    m2 = v128.max<i8>(m2, v128.add<i8>(v, v128.load_splat<i8>(x2 + k, 1)));
    m3 = v128.max<i8>(m3, v128.add<i8>(w, v128.load_splat<i8>(x3 + k)));
    m3 = v128.max<i8>(m3, v128.add<i8>(v, v128.load_splat<i8>(x3 + k, 1)));
    we += 32;
  }
  alignRow(m0, state, scales, bias);
  alignRow(m1, state + 64, scales + 64, bias);
  alignRow(m2, state + 128, scales + 128, bias);
  alignRow(m3, state + 192, scales + 192, bias);
}

/** 2^(F - max(products, accumulator)) of one row, as f32 bits, by (bias - emax) << 23. */
function alignRow(products: v128, state: usize, scales: usize, bias: i32): void {
  const low = v128.extend_low<i8>(products);
  const high = v128.extend_high<i8>(products);
  v128.store(scales, scaleOf(v128.extend_low<i16>(low), v128.load(state), bias));
  v128.store(scales, scaleOf(v128.extend_high<i16>(low), v128.load(state, 16), bias), 16);
  v128.store(scales, scaleOf(v128.extend_low<i16>(high), v128.load(state, 32), bias), 32);
  v128.store(scales, scaleOf(v128.extend_high<i16>(high), v128.load(state, 48), bias), 48);
}

function scaleOf(products: v128, accumulator: v128, bias: i32): v128 {
  const field = v128.and(v128.shr<u32>(accumulator, 23), v128.load(EXPONENT));
  const exponent = v128.max<i32>(products, v128.sub<i32>(field, v128.load(EXPONENT, 16)));
  const pinned = v128.max<i32>(exponent, v128.load(EXPONENT, 32));
  return v128.shl<i32>(v128.sub<i32>(i32x4.splat(bias), pinned), 23);
}

/** One row's step: 16 accumulators at `state`, aligned by `scales`. */
function addRow(x: usize, w: usize, step: u32, state: usize, scales: usize, mask: v128): void {
  const s0 = v128.load(scales);
  const s1 = v128.load(scales, 16);
  const s2 = v128.load(scales, 32);
  const s3 = v128.load(scales, 48);
  let a0 = v128.trunc<f32>(v128.mul<f32>(v128.load(state), s0));
  let a1 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 16), s1));
  let a2 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 32), s2));
  let a3 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 48), s3));
  const end = x + (step << 2);
  // Two k's a turn, in two basic blocks: V8 would hoist the loads of both to one place and spill.
  while (true) {
    const q = v128.load_splat<f32>(x);
    a0 = v128.add<f32>(a0, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(q, v128.load(w)), s0)));
    a1 = v128.add<f32>(a1, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(q, v128.load(w, 16)), s1)));
    a2 = v128.add<f32>(a2, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(q, v128.load(w, 32)), s2)));
    a3 = v128.add<f32>(a3, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(q, v128.load(w, 48)), s3)));
    x += 8;
    if (x > end) break;
    const r = v128.load_splat<f32>(x - 4);
    a0 = v128.add<f32>(a0, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(r, v128.load(w, 64)), s0)));
    a1 = v128.add<f32>(a1, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(r, v128.load(w, 80)), s1)));
    a2 = v128.add<f32>(a2, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(r, v128.load(w, 96)), s2)));
    a3 = v128.add<f32>(a3, v128.trunc<f32>(v128.mul<f32>(v128.mul<f32>(r, v128.load(w, 112)), s3)));
    w += 128;
    if (x === end) break;
  }
  const unit = i32x4.splat(0x7f000000);
  v128.store(state, v128.mul<f32>(v128.and(a0, mask), v128.sub<i32>(unit, s0)));
  v128.store(state, v128.mul<f32>(v128.and(a1, mask), v128.sub<i32>(unit, s1)), 16);
  v128.store(state, v128.mul<f32>(v128.and(a2, mask), v128.sub<i32>(unit, s2)), 32);
  v128.store(state, v128.mul<f32>(v128.and(a3, mask), v128.sub<i32>(unit, s3)), 48);
}

/**
 * One step of `rows` rows (a multiple of 4) by 16 columns. X: f32 [rows][step] and i8; W: f32 [step][16] and
 * i8; `state` f32 [rows][16]; `scales` 256 bytes of scratch.
 */
export function stepNarrow(
  task: usize,
  x: usize,
  xe: usize,
  w: usize,
  we: usize,
  step: u32,
  rows: u32,
  state: usize,
  scales: usize,
): void {
  const bias = 127 + alignBitsOf(task);
  const mask = i32x4.splat(-1 << (23 - fractionBitsOf(task)));
  const pitch = (<usize>step) << 2;
  // Four calls, not a loop over one: a function called once is inlined, and its registers spill.
  for (let row: u32 = 0; row < rows; row += 4) {
    alignRows(xe, we, step, state, scales, bias);
    addRow(x, w, step, state, scales, mask);
    addRow(x + pitch, w, step, state + 64, scales + 64, mask);
    addRow(x + 2 * pitch, w, step, state + 128, scales + 128, mask);
    addRow(x + 3 * pitch, w, step, state + 192, scales + 192, mask);
    x += 4 * pitch;
    state += 256;
    xe += step << 2;
  }
}
