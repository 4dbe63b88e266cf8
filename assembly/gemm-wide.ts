// The dot-add step for operands of any exponent under F <= 25 and P = 23, 8 columns at a time in f64x2. A
// product of two 11-bit significands is exact, and a sum of 33 terms stays an integer below 2^32 units.

import { alignBitsOf, zeroAccumulatorOf } from "./gemm-task";

/** The scales 2^(F - emax) of four rows and 8 columns, from the exponents of one step. */
function alignRows(xe: usize, we: usize, step: u32, state: usize, scales: usize, bias: i32, zero: i32): void {
  let m0 = i16x8.splat(-32768);
  let m1 = m0;
  let m2 = m0;
  let m3 = m0;
  const pitch = (<usize>step) << 1;
  const x1 = xe + pitch;
  const x2 = x1 + pitch;
  const x3 = x2 + pitch;
  for (let k: usize = 0; k < pitch; k += 4) {
    const w = v128.load(we);
    const v = v128.load(we, 16);
    m0 = v128.max<i16>(m0, v128.add<i16>(w, v128.load_splat<i16>(xe + k)));
    m0 = v128.max<i16>(m0, v128.add<i16>(v, v128.load_splat<i16>(xe + k, 2)));
    m1 = v128.max<i16>(m1, v128.add<i16>(w, v128.load_splat<i16>(x1 + k)));
    m1 = v128.max<i16>(m1, v128.add<i16>(v, v128.load_splat<i16>(x1 + k, 2)));
    m2 = v128.max<i16>(m2, v128.add<i16>(w, v128.load_splat<i16>(x2 + k)));
    m2 = v128.max<i16>(m2, v128.add<i16>(v, v128.load_splat<i16>(x2 + k, 2)));
    m3 = v128.max<i16>(m3, v128.add<i16>(w, v128.load_splat<i16>(x3 + k)));
    m3 = v128.max<i16>(m3, v128.add<i16>(v, v128.load_splat<i16>(x3 + k, 2)));
    we += 32;
  }
  // c's exponent, where c is zero: -126 and this.
  const ofZero = i32x4.splat(zero + 126);
  const top = i32x4.splat(bias);
  alignRow(m0, state, scales, top, ofZero);
  alignRow(m1, state + 64, scales + 64, top, ofZero);
  alignRow(m2, state + 128, scales + 128, top, ofZero);
  alignRow(m3, state + 192, scales + 192, top, ofZero);
}

/** 2^(F - max(products, accumulator)) of one row, as f64. */
function alignRow(products: v128, state: usize, scales: usize, bias: v128, ofZero: v128): void {
  storeScales(v128.extend_low<i16>(products), state, scales, bias, ofZero);
  storeScales(v128.extend_high<i16>(products), state + 32, scales + 32, bias, ofZero);
}

// Constants are loaded: V8 makes each literal anew, in three instructions, wherever it is used.
const EXPONENT = memory.data<i32>(
  [0x7ff, 0x7ff, 0x7ff, 0x7ff, 1023, 1023, 1023, 1023, -126, -126, -126, -126],
  16,
);

function storeScales(products: v128, state: usize, scales: usize, bias: v128, ofZero: v128): void {
  const high = v128.shuffle<i32>(v128.load(state), v128.load(state, 16), 1, 3, 5, 7);
  const field = v128.and(v128.shr<u32>(high, 20), v128.load(EXPONENT));
  const pinned = v128.max<i32>(v128.sub<i32>(field, v128.load(EXPONENT, 16)), v128.load(EXPONENT, 32));
  const none = v128.eq<i32>(high, i32x4.splat(0)); // a double that holds an f32 is zero iff its high word is
  const accumulator = v128.add<i32>(pinned, v128.and(none, ofZero));
  const power = v128.sub<i32>(bias, v128.max<i32>(products, accumulator));
  v128.store(scales, v128.shl<i64>(v128.extend_low<i32>(power), 52));
  v128.store(scales, v128.shl<i64>(v128.extend_high<i32>(power), 52), 16);
}

// Finishing a sum: truncation to f32's bits, then to multiples of 2^-149, then infinity from 2^128 up. The last
// two leave normal numbers alone, in one expression: trunc(v * 2^149) * 2^747 * 2^-896.
const FINISH = memory.data<u64>(
  [
    0x7fe0000000000000, // less the bits of 2^e, those of 2^-e
    0xffffffffe0000000, // f32's bits
    0x4940000000000000, // 2^149
    0x6ea0000000000000, // 2^747
    0x07f0000000000000, // 2^-896
  ],
  16,
);

/** One row's step: 8 accumulators at `state`, aligned by `scales`. */
function addRow(x: usize, w: usize, step: u32, state: usize, scales: usize): void {
  const s0 = v128.load(scales);
  const s1 = v128.load(scales, 16);
  const s2 = v128.load(scales, 32);
  const s3 = v128.load(scales, 48);
  let a0 = v128.trunc<f64>(v128.mul<f64>(v128.load(state), s0));
  let a1 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 16), s1));
  let a2 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 32), s2));
  let a3 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 48), s3));
  const end = x + (step << 3);
  // Two k's a turn, in two basic blocks: V8 would hoist the loads of both to one place and spill.
  while (true) {
    const q = v128.load_splat<f64>(x);
    a0 = v128.add<f64>(a0, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(q, v128.load(w)), s0)));
    a1 = v128.add<f64>(a1, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(q, v128.load(w, 16)), s1)));
    a2 = v128.add<f64>(a2, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(q, v128.load(w, 32)), s2)));
    a3 = v128.add<f64>(a3, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(q, v128.load(w, 48)), s3)));
    x += 16;
    if (x > end) break;
    const r = v128.load_splat<f64>(x - 8);
    a0 = v128.add<f64>(a0, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(r, v128.load(w, 64)), s0)));
    a1 = v128.add<f64>(a1, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(r, v128.load(w, 80)), s1)));
    a2 = v128.add<f64>(a2, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(r, v128.load(w, 96)), s2)));
    a3 = v128.add<f64>(a3, v128.trunc<f64>(v128.mul<f64>(v128.mul<f64>(r, v128.load(w, 112)), s3)));
    w += 128;
    if (x === end) break;
  }
  const reciprocal = v128.load_splat<i64>(FINISH);
  const bits = v128.load_splat<i64>(FINISH, 8);
  a0 = v128.and(v128.mul<f64>(a0, v128.sub<i64>(reciprocal, s0)), bits);
  a1 = v128.and(v128.mul<f64>(a1, v128.sub<i64>(reciprocal, s1)), bits);
  a2 = v128.and(v128.mul<f64>(a2, v128.sub<i64>(reciprocal, s2)), bits);
  a3 = v128.and(v128.mul<f64>(a3, v128.sub<i64>(reciprocal, s3)), bits);
  const up = v128.load_splat<f64>(FINISH, 16);
  const over = v128.load_splat<f64>(FINISH, 24);
  const down = v128.load_splat<f64>(FINISH, 32);
  const zero = f64x2.splat(0); // added, so that a zero sum is +0
  a0 = v128.mul<f64>(v128.mul<f64>(v128.trunc<f64>(v128.mul<f64>(a0, up)), over), down);
  a1 = v128.mul<f64>(v128.mul<f64>(v128.trunc<f64>(v128.mul<f64>(a1, up)), over), down);
  a2 = v128.mul<f64>(v128.mul<f64>(v128.trunc<f64>(v128.mul<f64>(a2, up)), over), down);
  a3 = v128.mul<f64>(v128.mul<f64>(v128.trunc<f64>(v128.mul<f64>(a3, up)), over), down);
  v128.store(state, v128.add<f64>(a0, zero));
  v128.store(state, v128.add<f64>(a1, zero), 16);
  v128.store(state, v128.add<f64>(a2, zero), 32);
  v128.store(state, v128.add<f64>(a3, zero), 48);
}

/**
 * One step of `rows` rows (a multiple of 4) by 8 columns. X: f64 [rows][step] and i16; W: f64 [step][8] and
 * i16; `state` f64 [rows][8]; `scales` 256 bytes of scratch.
 */
export function stepWide(
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
  const bias = 1023 + alignBitsOf(task);
  const zero = zeroAccumulatorOf(task);
  const pitch = (<usize>step) << 3;
  // Four calls, not a loop over one: a function called once is inlined, and its registers spill.
  for (let row: u32 = 0; row < rows; row += 4) {
    alignRows(xe, we, step, state, scales, bias, zero);
    addRow(x, w, step, state, scales);
    addRow(x + pitch, w, step, state + 64, scales + 64);
    addRow(x + 2 * pitch, w, step, state + 128, scales + 128);
    addRow(x + 3 * pitch, w, step, state + 192, scales + 192);
    x += 4 * pitch;
    state += 256;
    xe += step << 3;
  }
}
