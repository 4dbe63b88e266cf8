// The dot-add steps of gemm/few-rows.ts: one row of X by groups of eight rows of W, 16 k's per step. They are exact: a term is
// below 2^27 units of 2^(emax - F), so a term and the sum of 16 terms are i32.
//
// Exponents have the position of bf16's exponent in i16. The 7 bits below it may hold a fraction, which does not affect the
// largest exponent. Terms are aligned by an addition to the exponent of w. For a zero or subnormal w, this gives a term below
// one unit, which is truncated to zero.

/** The range of emax (gemm/few-rows.ts). */
export const LOWEST: i32 = -60;
const HIGHEST: i32 = 25;

const BIAS: i32 = 127;
export const ALIGN_BITS: i32 = 25;
const FRACTION: i32 = 7;

/**
 * A step of X: its first k as u32, the exponents of its values as i16 in the position of bf16's exponent, and the values as
 * f32.
 */
export const enum XStep {
  K = 0,
  Exponents = 16,
  /** For each 8 k's, the odd ones and then the even ones. */
  Values = 48,
  Bytes = 112,
}

/**
 * The result of the range check: emax was within its range in every step, was below it in some step, or was above it or a sum was
 * too large.
 */
export const enum Range {
  Inside = 0,
  Below = 1,
  Above = 2,
}

/** The bytes of the shifts of four groups. The sums follow them. */
const SHIFTS_BYTES: usize = 64;
const LARGEST_SUM: i32 = 62 << ALIGN_BITS;

// Constants are loaded from memory, because V8 rebuilds each literal in three instructions wherever it is used.
const CONSTANTS = memory.data<i32>(
  [
    0x7fff7fff, 0x7fff7fff, 0x7fff7fff, 0x7fff7fff, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000,
    0x7f807f80, 0x7f807f80, 0x7f807f80, 0x7f807f80,
  ],
  16,
);

function largestOfRow(w: usize, x0: v128, x1: v128, magnitude: v128): v128 {
  const a = v128.add<i16>(v128.and(v128.load(w), magnitude), x0);
  const b = v128.add<i16>(v128.and(v128.load(w, 16), magnitude), x1);
  return v128.max<i16>(a, b);
}

function pairs16(a: v128, b: v128): v128 {
  return v128.max<i16>(
    v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
    v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15),
  );
}

function pairs32(a: v128, b: v128): v128 {
  return v128.max<i16>(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7));
}

/** Groups of eight consecutive rows of W, which are `pitch` bytes apart, and memory for intermediate results. */
@unmanaged
export class RowsOfW {
  data: usize;
  pitch: usize;
  groups: u32;
  /** The results of largestProducts, group after group. */
  largest: usize;
  /** Scratch: 16 bytes for the shifts of each of four groups, followed by 128 bytes for the sums of each. */
  shifts: usize;
}

/** The size of a RowsOfW in bytes, rounded up to a multiple of 16. */
export const ROWS_OF_W_BYTES: usize = 32;

/** Writes the largest exponents of the products of each step to `largest`, as eight i16: one for each row of W. */
export function largestProducts(w: usize, pitch: usize, x: usize, steps: u32, largest: usize): void {
  const magnitude = v128.load(CONSTANTS);
  for (const end = x + <usize>steps * XStep.Bytes; x < end; x += XStep.Bytes) {
    let row = w + ((<usize>load<u32>(x, XStep.K)) << 1);
    const x0 = v128.load(x, XStep.Exponents);
    const x1 = v128.load(x, XStep.Exponents + 16);
    const m0 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m1 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m01 = pairs16(m0, m1);
    const m2 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m3 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m0123 = pairs32(m01, pairs16(m2, m3));
    const m4 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m5 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m45 = pairs16(m4, m5);
    const m6 = largestOfRow(row, x0, x1, magnitude);
    row += pitch;
    const m7 = largestOfRow(row, x0, x1, magnitude);
    const m4567 = pairs32(m45, pairs16(m6, m7));
    v128.store(
      largest,
      v128.max<i16>(v128.shuffle<i64>(m0123, m4567, 0, 2), v128.shuffle<i64>(m0123, m4567, 1, 3)),
    );
    largest += 16;
  }
}

/**
 * Adds the terms of a step. Writes four partial sums, i32, for each row of W to `sums`; they add up to the sum of the row. The
 * shifts of rows, i16, precede the sums and end at `end`.
 */
function sumRows(row: usize, pitch: usize, x: usize, end: usize, sums: usize): void {
  let shifts = sums - SHIFTS_BYTES;
  const odd = v128.load(CONSTANTS, 16);
  for (; shifts < end; shifts += 2) {
    const shift = v128.load_splat<i16>(shifts);
    const a = v128.add<i16>(v128.load(row), shift);
    const b = v128.add<i16>(v128.load(row, 16), shift);
    const a1 = v128.trunc_sat<i32>(v128.mul<f32>(v128.and(a, odd), v128.load(x, XStep.Values)));
    const a0 = v128.trunc_sat<i32>(v128.mul<f32>(v128.shl<i32>(a, 16), v128.load(x, XStep.Values + 16)));
    const b1 = v128.trunc_sat<i32>(v128.mul<f32>(v128.and(b, odd), v128.load(x, XStep.Values + 32)));
    const b0 = v128.trunc_sat<i32>(v128.mul<f32>(v128.shl<i32>(b, 16), v128.load(x, XStep.Values + 48)));
    v128.store(sums, v128.add<i32>(v128.add<i32>(a1, a0), v128.add<i32>(b1, b0)));
    row += pitch;
    sums += 16;
  }
}

function pairSums(a: v128, b: v128): v128 {
  return v128.add<i32>(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7));
}

function pairs(a: v128, b: v128): v128 {
  return v128.add<i32>(v128.shuffle<i64>(a, b, 0, 2), v128.shuffle<i64>(a, b, 1, 3));
}

/**
 * Returns the accumulators `c` of four rows after a step: the sum of trunc(c * 2^shift) and `sum`, truncated to 24 bits, times
 * 2^-shift. `shift` has the position of f32's exponent.
 */
function addSums(c: v128, sum: v128, shift: v128): v128 {
  const total = v128.add<i32>(sum, v128.trunc_sat<i32>(v128.add<i32>(c, shift)));
  const size = v128.abs<i32>(total);
  // clears the bit below the last of 24 bits, so that the conversion rounds down
  const rounded = v128.convert<i32>(v128.andnot(size, v128.shr<u32>(size, 24)));
  const sign = v128.and(total, i32x4.splat(0x80000000));
  return v128.mul<f32>(rounded, v128.or(sign, v128.sub<i32>(i32x4.splat(BIAS << 23), shift)));
}

/**
 * Adds the steps to the accumulators at `state`, eight f32 for each group of rows of W. If the result is Range.Above, the
 * accumulators are wrong. The shifts of a group depend on its accumulators; while the processor waits for them, it computes other
 * groups.
 */
export function sumSteps(w: RowsOfW, x: usize, steps: u32, state: usize): Range {
  let largest = w.largest;
  const shifts = w.shifts;
  const data = w.data;
  const pitch = w.pitch;
  let low = i16x8.splat(0x7fff);
  let high = i16x8.splat(-0x8000);
  let widest = i32x4.splat(0);
  const lastGroup = state + (w.groups << 5);
  const groupPitch = (<usize>steps) << 4;
  for (const end = x + <usize>steps * XStep.Bytes; x < end; x += XStep.Bytes) {
    let products = largest;
    let by = shifts;
    for (let c = state; c < lastGroup; c += 32) {
      const accumulators = v128.and(
        v128.shuffle<i16>(v128.load(c), v128.load(c, 16), 1, 3, 5, 7, 9, 11, 13, 15),
        v128.load(CONSTANTS),
      );
      const emax = v128.max<i16>(v128.load(products), accumulators);
      low = v128.min<i16>(low, emax);
      high = v128.max<i16>(high, emax);
      const field = v128.and(
        v128.max<i16>(emax, i16x8.splat(<i16>((BIAS + LOWEST) << FRACTION))),
        v128.load(CONSTANTS, 32),
      );
      const shift = v128.sub<i16>(i16x8.splat(<i16>((BIAS + ALIGN_BITS) << FRACTION)), field);
      v128.store(by, shift);
      by += 16;
      products += groupPitch;
    }
    const sums = shifts + SHIFTS_BYTES;
    sumRows(data + ((<usize>load<u32>(x, XStep.K)) << 1), pitch, x, by, sums);
    by = shifts;
    let sum = sums;
    for (let c = state; c < lastGroup; c += 16) {
      const s01 = pairSums(v128.load(sum), v128.load(sum, 16));
      const total = pairs(s01, pairSums(v128.load(sum, 32), v128.load(sum, 48)));
      widest = v128.max<u32>(widest, v128.abs<i32>(total));
      const shift = v128.shl<i32>(v128.load_ext<u16>(by), 16);
      v128.store(c, addSums(v128.load(c), total, shift));
      by += 8;
      sum += 64;
    }
    largest += 16;
  }
  const tooWide = v128.any_true(v128.gt<u32>(widest, i32x4.splat(LARGEST_SUM)));
  const above = i16x8.splat(<i16>((BIAS + HIGHEST + 1) << FRACTION));
  if (tooWide || v128.any_true(v128.ge<i16>(high, above))) return Range.Above;
  const lowest = i16x8.splat(<i16>((BIAS + LOWEST) << FRACTION));
  return v128.any_true(v128.lt<i16>(low, lowest)) ? Range.Below : Range.Inside;
}
