// The dot-add step (gemm/datapath.ts) for 8-bit operands with F = P = 13, for 16 columns at a time, four per f32x4. It
// is exact: a term is below 2^15 units of 2^(emax - 13), and a step has at most 65 terms, so every partial sum is an
// integer below 2^24 units.
//
// The alignment scale 2^(13 - emax) converts a term to units. The scales of ALIGNED_ROWS rows are computed before the
// sums of these rows, so that the sums do not wait for them.
import { ProductTask } from "./task";
import { Tile } from "./tile";

/** The number of rows whose alignment scales are computed before their sums. */
export const ALIGNED_ROWS: u32 = 16;
/** The size in bytes of the alignment scales of these rows. */
export const SCALES_BYTES: usize = 1024;
/** The size in bytes of all intermediate results of a step: these scales, and the largest exponents of the products. */
export const ALIGNED_BYTES: usize = 1536;

// Constants are loaded from memory, because V8 rebuilds each literal in three instructions wherever it is used.
const FIELD = memory.data<i32>(
  [0x7f800000, 0x7f800000, 0x7f800000, 0x7f800000, 0x7f807f80, 0x7f807f80, 0x7f807f80, 0x7f807f80],
  16,
);

/**
 * Writes the largest exponents of the products of four rows and 16 columns in one step, separately for even and odd k's, to
 * `pairs`. The exponents of W have f32's bias and are stored in pairs of k's, so one vector addition adds two exponents of X to
 * eight columns' exponents.
 */
function largestOfFour(x0: usize, we: usize, step: usize, pairs: usize): void {
  let m0 = i8x16.splat(0);
  let m1 = m0;
  let m2 = m0;
  let m3 = m0;
  let n0 = m0;
  let n1 = m0;
  let n2 = m0;
  let n3 = m0;
  let x1 = x0 + step;
  let x2 = x1 + step;
  let x3 = x2 + step;
  const end = x1;
  do {
    const w = v128.load(we);
    const v = v128.load(we, 16);
    const p0 = v128.load_splat<u16>(x0);
    m0 = v128.max<u8>(m0, v128.add<i8>(w, p0));
    n0 = v128.max<u8>(n0, v128.add<i8>(v, p0));
    const p1 = v128.load_splat<u16>(x1);
    m1 = v128.max<u8>(m1, v128.add<i8>(w, p1));
    n1 = v128.max<u8>(n1, v128.add<i8>(v, p1));
    const p2 = v128.load_splat<u16>(x2);
    m2 = v128.max<u8>(m2, v128.add<i8>(w, p2));
    n2 = v128.max<u8>(n2, v128.add<i8>(v, p2));
    const p3 = v128.load_splat<u16>(x3);
    m3 = v128.max<u8>(m3, v128.add<i8>(w, p3));
    n3 = v128.max<u8>(n3, v128.add<i8>(v, p3));
    we += 32;
    x0 += 2;
    x1 += 2;
    x2 += 2;
    x3 += 2;
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

/**
 * Writes the alignment scales 2^(F - emax) as f32, eight columns per iteration. emax is the largest exponent of the
 * products (`pairs`) and the accumulator (`state`). `top` is 254 + F, shifted to the position of f32's exponent field.
 */
function scaleRows(pairs: usize, state: usize, end: usize, scales: usize, top: i32): void {
  const field = v128.load(FIELD);
  const fields = v128.load(FIELD, 16);
  const tops = i32x4.splat(top);
  const zero = i32x4.splat(0);
  for (; state < end; state += 32) {
    const pair = v128.load(pairs);
    const larger = v128.max<u8>(pair, v128.shl<i16>(pair, 8));
    const upper = v128.and(v128.shr<u16>(larger, 1), fields);
    const low = v128.shuffle<i16>(zero, upper, 0, 8, 1, 9, 2, 10, 3, 11);
    const high = v128.shuffle<i16>(zero, upper, 4, 12, 5, 13, 6, 14, 7, 15);
    v128.store(scales, v128.sub<i32>(tops, v128.max<i32>(low, v128.and(v128.load(state), field))));
    v128.store(scales, v128.sub<i32>(tops, v128.max<i32>(high, v128.and(v128.load(state, 16), field))), 16);
    pairs += 16;
    scales += 32;
  }
}

/**
 * Adds the step's products, aligned by their scales, to the 16 accumulators of each row. `keptBits` masks the bits of a
 * result that are not truncated.
 */
function addRows(tile: Tile, x: usize, rows: u32, state: usize, keptBits: i32): void {
  const panel = tile.w;
  const step = <usize>tile.step;
  let scales = tile.scales;
  const mask = i32x4.splat(keptBits);
  for (const last = state + ((<usize>rows) << 6); state < last; state += 64) {
    const s0 = v128.load(scales);
    const s1 = v128.load(scales, 16);
    const s2 = v128.load(scales, 32);
    const s3 = v128.load(scales, 48);
    let a0 = v128.trunc<f32>(v128.mul<f32>(v128.load(state), s0));
    let a1 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 16), s1));
    let a2 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 32), s2));
    let a3 = v128.trunc<f32>(v128.mul<f32>(v128.load(state, 48), s3));
    const end = x + (step << 2);
    let w = panel;
    // two k's per iteration, in two basic blocks: in one block, V8 would hoist the loads of both and spill registers
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
    x = end;
    scales += 64;
    const unit = i32x4.splat(0x7f000000);
    v128.store(state, v128.mul<f32>(v128.and(a0, mask), v128.sub<i32>(unit, s0)));
    v128.store(state, v128.mul<f32>(v128.and(a1, mask), v128.sub<i32>(unit, s1)), 16);
    v128.store(state, v128.mul<f32>(v128.and(a2, mask), v128.sub<i32>(unit, s2)), 32);
    v128.store(state, v128.mul<f32>(v128.and(a3, mask), v128.sub<i32>(unit, s3)), 48);
  }
}

/**
 * Computes one step of `rows` rows (a multiple of 4) by 16 columns; `step` is even. X is f32 [rows][step] with i8
 * exponents. W is f32 [step][16] with u8 exponents [step / 2][16][2], biased by 127. `state` is f32 [rows][16].
 * `scales` is ALIGNED_BYTES of scratch.
 */
export function stepNarrow(task: ProductTask, tile: Tile): void {
  let x = tile.x;
  let xe = tile.xe;
  const we = tile.we;
  const step = tile.step;
  const rows = tile.rows;
  let state = tile.states;
  const scales = tile.scales;
  const top = (254 + task.alignBits) << 23;
  const keptBits = -1 << (23 - task.fractionBits);
  const pairs = scales + SCALES_BYTES;
  for (let row: u32 = 0; row < rows; row += ALIGNED_ROWS) {
    const blockRows = min(ALIGNED_ROWS, rows - row);
    for (let i: u32 = 0; i < blockRows; i += 4) largestOfFour(xe + i * step, we, step, pairs + (i << 5));
    scaleRows(pairs, state, state + (blockRows << 6), scales, top);
    addRows(tile, x, blockRows, state, keptBits);
    x += step * (ALIGNED_ROWS << 2);
    xe += step * ALIGNED_ROWS;
    state += ALIGNED_ROWS << 6;
  }
}
