// The running softmax of one row (numerics.md §10.3). The state of a row is 16 words: the maximum m of z, its scaled form r, the
// totals R and E of earlier splits, and eight partial sums e. Partial sum l has the keys that are l modulo 8.

import { ex2Four } from "../core/special-functions";
import { fmaFour } from "../gemm/datapath";

export const enum RowField {
  Maximum = 0,
  Scaled = 4,
  TotalScaled = 8,
  Total = 12,
  Largest = 16,
  /** 1 if the split has a visible key. */
  IsSeen = 20,
  Sums = 32,
}

const MIN_MAXIMUM: f32 = -Infinity;

/** Begins a row. */
export function openRow(row: usize): void {
  store<f32>(row, MIN_MAXIMUM, RowField.TotalScaled);
  store<f32>(row, 0, RowField.Total);
  store<f32>(row, MIN_MAXIMUM, RowField.Largest);
  openSplit(row);
}

/** Begins a split of a row. */
export function openSplit(row: usize): void {
  store<f32>(row, MIN_MAXIMUM, RowField.Maximum);
  store<f32>(row, MIN_MAXIMUM, RowField.Scaled);
  store<u32>(row, 0, RowField.IsSeen);
  v128.store(row, f32x4.splat(0), RowField.Sums);
  v128.store(row, f32x4.splat(0), RowField.Sums + 16);
}

/** The base of a row's exponents: `scaled`, or +0 if `scaled` is minus infinity. */
export function baseOf(scaled: f32): f32 {
  return scaled === MIN_MAXIMUM ? 0 : scaled;
}

/** 2^(from - base), of one f32. */
export function powerOf(from: f32, base: f32): f32 {
  return f32x4.extract_lane(ex2Four(f32x4.splat(from - base)), 0);
}

/**
 * Adds the scores z of a block to the state of a row, and replaces them by their probabilities p; hidden keys get 0. `count` is
 * a multiple of 16. Returns the factor a by which the row's output must be multiplied.
 */
export function addScores(row: usize, scores: usize, visible: usize, count: u32, factor: f32): f32 {
  let largest = f32x4.splat(load<f32>(row, RowField.Maximum));
  const minMaximum = f32x4.splat(MIN_MAXIMUM);
  for (let j: usize = 0; j < count; j += 4) {
    const shown = visibleFour(visible + j);
    largest = f32x4.pmax(largest, v128.bitselect(v128.load(scores + (j << 2)), minMaximum, shown));
  }
  largest = f32x4.pmax(largest, v128.shuffle<i64>(largest, largest, 1, 1));
  largest = f32x4.pmax(largest, v128.shuffle<i32>(largest, largest, 1, 1, 1, 1));
  const maximum = f32x4.extract_lane(largest, 0);
  const scaled = maximum * factor;
  const base = baseOf(scaled);
  store<u32>(row, 1, RowField.IsSeen);
  const decay = powerOf(load<f32>(row, RowField.Scaled), base);
  store<f32>(row, maximum, RowField.Maximum);
  store<f32>(row, scaled, RowField.Scaled);
  const c = f32x4.splat(factor);
  const minusBase = f32x4.splat(-base);
  let even = f32x4.mul(v128.load(row, RowField.Sums), f32x4.splat(decay));
  let odd = f32x4.mul(v128.load(row, RowField.Sums + 16), f32x4.splat(decay));
  for (let j: usize = 0; j < count; j += 8) {
    const at = scores + (j << 2);
    const p = v128.and(ex2Four(fmaFour(v128.load(at), c, minusBase)), visibleFour(visible + j));
    const q = v128.and(ex2Four(fmaFour(v128.load(at, 16), c, minusBase)), visibleFour(visible + j + 4));
    even = f32x4.add(even, p);
    odd = f32x4.add(odd, q);
    v128.store(at, p);
    v128.store(at, q, 16);
  }
  v128.store(row, even, RowField.Sums);
  v128.store(row, odd, RowField.Sums + 16);
  return decay;
}

/** Converts four bytes, each 0 or 1, to lanes of all zeros or all ones. */
export function visibleFour(bytes: usize): v128 {
  const zero = i32x4.splat(0);
  const wide = v128.extend_low<u16>(v128.extend_low<u8>(v128.load32_zero(bytes)));
  return i32x4.ne(wide, zero);
}

/** The sum of the eight partial sums of a row. */
export function sumOf(row: usize): f32 {
  const low = v128.load(row, RowField.Sums);
  const high = v128.load(row, RowField.Sums + 16);
  const pairs = f32x4.add(v128.shuffle<i32>(low, high, 0, 2, 4, 6), v128.shuffle<i32>(low, high, 1, 3, 5, 7));
  const first = f32x4.extract_lane(pairs, 0) + f32x4.extract_lane(pairs, 1);
  return first + (f32x4.extract_lane(pairs, 2) + f32x4.extract_lane(pairs, 3));
}
