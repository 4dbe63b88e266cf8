// The infinitely precise dot product, rounded once to f32. The exponents of a row of X and of 8 columns of W decide the
// arithmetic: one f64 sum if it is exact, else two f64 sums if these are exact, else fixed point.

import { addProduct, clearSum, sumToOdd } from "./accumulator";
import { exponentOf, pow2, roundToOdd, sumError } from "./datapath";
import { ProductTask } from "./task";
import { Tile } from "./tile";

/**
 * A span describes the nonzero values of a row of X, or of 8 columns of W. It is three i32: the exponent of the lowest
 * set bit of any value, one more than the largest exponent, and the largest number of significant bits.
 */
export const SPAN_BYTES: usize = 16;
const NO_EXPONENT: i32 = 4096;

export function clearSpan(span: usize): void {
  store<i32>(span, NO_EXPONENT);
  store<i32>(span, -NO_EXPONENT, 4);
  store<i32>(span, 0, 8);
}

/** Extends a span to `count` more values. An infinity or NaN makes the span so wide that fixed point is used. */
export function coverSpan(span: usize, values: usize, count: u32): void {
  let lowest = load<i32>(span);
  let top = load<i32>(span, 4);
  let width = load<i32>(span, 8);
  for (let k: u32 = 0; k < count; k++) {
    const value = load<f64>(values + (k << 3));
    if (value === 0) continue;
    const exponent = exponentOf(value);
    const low = exponent - 52 + <i32>ctz(reinterpret<u64>(value) | 0x0010000000000000);
    lowest = min(lowest, low);
    top = max(top, exponent === 1024 ? NO_EXPONENT : exponent + 1);
    width = max(width, exponent + 1 - low);
  }
  store<i32>(span, lowest);
  store<i32>(span, top, 4);
  store<i32>(span, width, 8);
}

/**
 * Returns the number of bits, without the sign, that a sum of products needs at most. `x` and `w` are the spans of the
 * operands, and `doublings` is log2 of the number of terms, rounded up.
 */
function spanOf(x: usize, w: usize, doublings: i32): i32 {
  return load<i32>(x, 4) + load<i32>(w, 4) + doublings + 1 - (load<i32>(x) + load<i32>(w));
}

/** Computes one row by 8 columns in f64. The caller has checked by the spans that every sum is exact. */
function addExact(x: usize, w: usize, terms: u32, state: usize): void {
  let a0 = f64x2.splat(0);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  const end = x + ((<usize>terms) << 3);
  while (x < end) {
    const q = v128.load_splat<f64>(x);
    a0 = v128.add<f64>(a0, v128.mul<f64>(q, v128.load(w)));
    a1 = v128.add<f64>(a1, v128.mul<f64>(q, v128.load(w, 16)));
    a2 = v128.add<f64>(a2, v128.mul<f64>(q, v128.load(w, 32)));
    a3 = v128.add<f64>(a3, v128.mul<f64>(q, v128.load(w, 48)));
    x += 8;
    w += 64;
  }
  v128.store(state, a0);
  v128.store(state, a1, 16);
  v128.store(state, a2, 32);
  v128.store(state, a3, 48);
}

/**
 * Computes one row by 4 columns as two f64 sums. Adding and then subtracting 3 * 2^(51 + grid), which is stored at
 * `magic`, splits a product into a multiple of 2^grid and a remainder. One f64 sums the multiples, another the
 * remainders.
 */
function addSplit(x: usize, w: usize, terms: u32, state: usize, magic: usize): void {
  const magicLanes = v128.load_splat<f64>(magic);
  let high0 = f64x2.splat(0);
  let high1 = high0;
  let low0 = high0;
  let low1 = high0;
  const end = x + ((<usize>terms) << 3);
  while (x < end) {
    const q = v128.load_splat<f64>(x);
    const p0 = v128.mul<f64>(q, v128.load(w));
    const p1 = v128.mul<f64>(q, v128.load(w, 16));
    const r0 = v128.sub<f64>(v128.add<f64>(p0, magicLanes), magicLanes);
    const r1 = v128.sub<f64>(v128.add<f64>(p1, magicLanes), magicLanes);
    high0 = v128.add<f64>(high0, r0);
    high1 = v128.add<f64>(high1, r1);
    low0 = v128.add<f64>(low0, v128.sub<f64>(p0, r0));
    low1 = v128.add<f64>(low1, v128.sub<f64>(p1, r1));
    x += 8;
    w += 64;
  }
  store<f64>(state, combined(v128.extract_lane<f64>(high0, 0), v128.extract_lane<f64>(low0, 0)));
  store<f64>(state, combined(v128.extract_lane<f64>(high0, 1), v128.extract_lane<f64>(low0, 1)), 8);
  store<f64>(state, combined(v128.extract_lane<f64>(high1, 0), v128.extract_lane<f64>(low1, 0)), 16);
  store<f64>(state, combined(v128.extract_lane<f64>(high1, 1), v128.extract_lane<f64>(low1, 1)), 24);
}

function combined(high: f64, low: f64): f64 {
  const sum = high + low;
  return roundToOdd(sum, sumError(high, low, sum));
}

/**
 * Computes one output in fixed point. Infinities and NaN are summed in f64. Consecutive elements of W are 64 bytes
 * apart.
 */
function addFixed(x: usize, w: usize, terms: u32, limbs: usize): f64 {
  let special: f64 = 0;
  clearSum(limbs);
  for (let k: usize = 0; k < terms; k++) {
    const p = load<f64>(x + (k << 3));
    const q = load<f64>(w + (k << 6));
    const product = p * q;
    if (!(abs(product) < Infinity)) special += product;
    else if (product !== 0) addProduct(limbs, p, q);
  }
  return special === 0 ? sumToOdd(limbs) : special;
}

/**
 * Writes the sums of `terms` products, rounded to f32, for `rows` rows by 8 columns. X is f64 [rows][terms] with a span
 * per row, at `xe`. W is f64 [terms][8] with one span, at `we`.
 */
export function stepExact(_task: ProductTask, tile: Tile): void {
  let x = tile.x;
  let xe = tile.xe;
  const w = tile.w;
  const we = tile.we;
  const terms = tile.step;
  const rows = tile.rows;
  let state = tile.states;
  const scratch = tile.scales;
  const doublings = 32 - <i32>clz(terms);
  for (let row: u32 = 0; row < rows; row++) {
    const span = spanOf(xe, we, doublings);
    // A sum of products is below 2^t, where t = top(x) + top(w) + doublings. addSplit uses grid = t - 51, so the
    // multiples sum exactly. A remainder is at most 2^(grid - 1), so their sum needs span - 53 + doublings bits, which
    // must be at most 53.
    const splits = span <= 106 - doublings && load<i32>(xe, 8) + load<i32>(we, 8) <= 53;
    if (span <= 53) addExact(x, w, terms, state);
    else if (splits) {
      store<f64>(scratch, 3 * pow2(load<i32>(xe, 4) + load<i32>(we, 4) + doublings));
      addSplit(x, w, terms, state, scratch);
      addSplit(x, w + 32, terms, state + 32, scratch);
    } else for (let j: usize = 0; j < 64; j += 8) store<f64>(state + j, addFixed(x, w + j, terms, scratch));
    for (let j: usize = 0; j < 64; j += 8) store<f64>(state + j, <f32>load<f64>(state + j));
    x += (<usize>terms) << 3;
    xe += SPAN_BYTES;
    state += 64;
  }
}
