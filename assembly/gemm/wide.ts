// The dot-add step (gemm/datapath.ts) with F <= 25 and P = 23, for operands of any exponent. It computes 8 columns at a
// time, two per f64x2. It is exact: a product of two significands has at most 22 bits, and a sum of 33 terms, in units
// of 2^(emax - F), stays far below 2^53.
//
// The alignment scales of a few rows are computed before their sums, as in gemm/narrow.ts.

import { ALIGNED_ROWS, SCALES_BYTES } from "./narrow";
import { ProductTask } from "./task";
import { Tile } from "./tile";

/**
 * Writes the largest exponents of the products of four rows and 8 columns in one step, separately for even and odd k's, to
 * `pairs`. They are i16 in the position of f64's exponent field (its upper 16 bits). The exponents of W have f64's bias and are
 * stored in pairs of k's, so one vector addition adds two exponents of X to four columns' exponents.
 */
function largestOfFour(x0: usize, we: usize, pitch: usize, pairs: usize): void {
  let m0 = i16x8.splat(0);
  let m1 = m0;
  let m2 = m0;
  let m3 = m0;
  let n0 = m0;
  let n1 = m0;
  let n2 = m0;
  let n3 = m0;
  let x1 = x0 + pitch;
  let x2 = x1 + pitch;
  let x3 = x2 + pitch;
  const end = x1;
  do {
    const w = v128.load(we);
    const v = v128.load(we, 16);
    const p0 = v128.load_splat<u32>(x0);
    m0 = v128.max<i16>(m0, v128.add<i16>(w, p0));
    n0 = v128.max<i16>(n0, v128.add<i16>(v, p0));
    const p1 = v128.load_splat<u32>(x1);
    m1 = v128.max<i16>(m1, v128.add<i16>(w, p1));
    n1 = v128.max<i16>(n1, v128.add<i16>(v, p1));
    const p2 = v128.load_splat<u32>(x2);
    m2 = v128.max<i16>(m2, v128.add<i16>(w, p2));
    n2 = v128.max<i16>(n2, v128.add<i16>(v, p2));
    const p3 = v128.load_splat<u32>(x3);
    m3 = v128.max<i16>(m3, v128.add<i16>(w, p3));
    n3 = v128.max<i16>(n3, v128.add<i16>(v, p3));
    we += 32;
    x0 += 4;
    x1 += 4;
    x2 += 4;
    x3 += 4;
  } while (x0 < end);
  v128.store(pairs, m0);
  v128.store(pairs, n0, 16);
  v128.store(pairs, m1, 32);
  v128.store(pairs, n1, 48);
  v128.store(pairs, m2, 64);
  v128.store(pairs, n2, 80);
  v128.store(pairs, m3, 96);
  v128.store(pairs, n3, 112);
}

// The upper halves of f64 constants: the mask of the exponent field, and 2^-126. They are loaded from memory, because
// V8 rebuilds each literal in three instructions wherever it is used.
const FIELD = memory.data<i32>(
  [0x7ff00000, 0x7ff00000, 0x7ff00000, 0x7ff00000, 0x38100000, 0x38100000, 0x38100000, 0x38100000],
  16,
);

/**
 * Writes the alignment scales 2^(F - emax) as f64, four columns per iteration; F is the task's alignBits. emax is the largest
 * exponent of the products (`pairs`) and the accumulator (`state`). T = u32 handles subnormal and zero accumulators, T
 * = u8 does not.
 *
 * Returns whether some emax needs more care: below F - 149, the unit 2^(emax - F) is less than f32's smallest
 * subnormal; below -126, subnormal and zero accumulators matter; above 119, a sum of 33 terms may reach 2^128.
 */
function scaleRows<T>(task: ProductTask, pairs: usize, state: usize, end: usize, scales: usize): bool {
  const bits = task.alignBits;
  const field = v128.load(FIELD);
  const smallest = v128.load(FIELD, 16); // 2^-126
  const fromSmallest = i32x4.splat((task.zeroAccumulator + 126) << 20);
  const tops = i32x4.splat((2046 + bits) << 20);
  const lowest = max(1023 - 149 + bits, 1023 - 126) << 20;
  const floor = i32x4.splat(lowest);
  const zero = i32x4.splat(0);
  let widest = zero;
  for (; state < end; state += 32) {
    const pair = v128.load(pairs);
    const products = v128.and(v128.max<i16>(pair, v128.shl<i32>(pair, 16)), field);
    let c = v128.and(v128.shuffle<i32>(v128.load(state), v128.load(state, 16), 1, 3, 5, 7), field);
    if (sizeof<T>() === 4) {
      const isZero = v128.eq<i32>(c, zero); // an f64 that holds an f32 value is zero exactly if its exponent field is zero
      c = v128.add<i32>(v128.max<i32>(c, smallest), v128.and(isZero, fromSmallest));
    }
    const emax = v128.max<i32>(products, c);
    const scale = v128.sub<i32>(tops, emax);
    v128.store(scales, v128.shuffle<i32>(zero, scale, 0, 4, 1, 5));
    v128.store(scales, v128.shuffle<i32>(zero, scale, 2, 6, 3, 7), 16);
    widest = v128.max<u32>(widest, v128.sub<i32>(emax, floor));
    pairs += 16;
    scales += 32;
  }
  return v128.any_true(v128.gt<u32>(widest, i32x4.splat(((1023 + 119) << 20) - lowest)));
}

const FINISH = memory.data<u64>(
  [
    0x7fe0000000000000, // this minus the bits of 2^e gives the bits of 2^-e
    0xffffffffe0000000, // masks the 24 significant bits of f32
    0x4940000000000000, // 2^149
    0x6ea0000000000000, // 2^747
    0x07f0000000000000, // 2^-896
  ],
  16,
);

/**
 * Adds the step's products, aligned by their scales, to the 8 accumulators of each row, and truncates the sums to 24
 * significant bits.
 */
function addRows(tile: Tile, x: usize, rows: u32, state: usize): void {
  const panel = tile.w;
  let scales = tile.scales;
  const pitch = (<usize>tile.step) << 3;
  for (const last = state + ((<usize>rows) << 6); state < last; state += 64) {
    const s0 = v128.load(scales);
    const s1 = v128.load(scales, 16);
    const s2 = v128.load(scales, 32);
    const s3 = v128.load(scales, 48);
    let a0 = v128.trunc<f64>(v128.mul<f64>(v128.load(state), s0));
    let a1 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 16), s1));
    let a2 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 32), s2));
    let a3 = v128.trunc<f64>(v128.mul<f64>(v128.load(state, 48), s3));
    const end = x + pitch;
    let w = panel;
    // two k's per iteration, in two basic blocks: in one block, V8 would hoist the loads of both and spill registers
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
    x = end;
    scales += 64;
    const reciprocal = v128.load_splat<i64>(FINISH);
    const bits = v128.load_splat<i64>(FINISH, 8);
    a0 = v128.and(v128.mul<f64>(a0, v128.sub<i64>(reciprocal, s0)), bits);
    a1 = v128.and(v128.mul<f64>(a1, v128.sub<i64>(reciprocal, s1)), bits);
    a2 = v128.and(v128.mul<f64>(a2, v128.sub<i64>(reciprocal, s2)), bits);
    a3 = v128.and(v128.mul<f64>(a3, v128.sub<i64>(reciprocal, s3)), bits);
    v128.store(state, a0);
    v128.store(state, a1, 16);
    v128.store(state, a2, 32);
    v128.store(state, a3, 48);
  }
}

/**
 * Fits sums of 24 significant bits to f32's range: truncates them to multiples of 2^-149, and replaces those from 2^128
 * up by infinity. The expression trunc(v * 2^149) * 2^747 * 2^-896 does both, because v * 2^896 overflows f64 from
 * 2^128 up. It leaves normal numbers unchanged.
 */
function boundRows(state: usize, end: usize): void {
  const up = v128.load_splat<f64>(FINISH, 16);
  const over = v128.load_splat<f64>(FINISH, 24);
  const down = v128.load_splat<f64>(FINISH, 32);
  for (; state < end; state += 16) {
    const units = v128.trunc<f64>(v128.mul<f64>(v128.load(state), up));
    v128.store(state, v128.mul<f64>(v128.mul<f64>(units, over), down));
  }
}

/**
 * Replaces -0, which truncation may produce, by +0. Steps within a chain need no such call, because the sign of a zero
 * accumulator does not affect a sum.
 */
export function clearZeroSigns(state: usize, rows: u32): void {
  const zero = f64x2.splat(0);
  for (const end = state + ((<usize>rows) << 6); state < end; state += 16) {
    v128.store(state, v128.add<f64>(v128.load(state), zero));
  }
}

/**
 * Computes one step of `rows` rows (a multiple of 4) by 8 columns; `step` is even. X is f64 [rows][step] with i16
 * exponents. W is f64 [step][8] with i16 exponents [step / 2][8][2], biased by 1023. All exponents are multiplied by
 * 16. `state` is f64 [rows][8]. `scales` is ALIGNED_BYTES of scratch.
 */
export function stepWide(task: ProductTask, tile: Tile): void {
  let x = tile.x;
  let xe = tile.xe;
  const we = tile.we;
  const step = tile.step;
  const rows = tile.rows;
  let state = tile.states;
  const scales = tile.scales;
  const pitch = (<usize>step) << 1;
  const pairs = scales + SCALES_BYTES;
  for (let row: u32 = 0; row < rows; row += ALIGNED_ROWS) {
    const blockRows = min(ALIGNED_ROWS, rows - row);
    const end = state + (blockRows << 6);
    for (let i: u32 = 0; i < blockRows; i += 4) largestOfFour(xe + i * pitch, we, pitch, pairs + (i << 5));
    const unbounded = scaleRows<u8>(task, pairs, state, end, scales);
    if (unbounded) scaleRows<u32>(task, pairs, state, end, scales);
    addRows(tile, x, blockRows, state);
    if (unbounded) boundRows(state, end);
    x += step * (ALIGNED_ROWS << 3);
    xe += pitch * ALIGNED_ROWS;
    state = end;
  }
}
