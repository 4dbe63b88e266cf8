// As settled.ts, for packed 4-bit codes in blocks of a multiple of 16 elements. Their values have at most eight significant bits,
// so two tables of 16 bytes hold all values.

import { fourValues, isFiltered, isOpen, ROUNDED, Run, roundedShare } from "./settled";
import { addSquares, addTo, TallyAt } from "./tally";

/** Byte offsets of the inputs and outputs of `settledPairs`. */
const enum At {
  /** The two upper bytes of each code's f32 value. */
  Third = 0,
  Fourth = 16,
  /** The largest magnitude of a code, f32. */
  Largest = 32,
  /**
   * 15 as a u8, and a mask of all f32 bits but the sign. Loops load them, because V8 rebuilds `v128` literals in every iteration.
   */
  Half = 36,
  Magnitude = 40,
  /** The number of values that changed, u32. */
  Changed = 44,
}

/** Writes the inputs of `settledPairs` to `pairContext` (48 bytes), from the f32 values of pairs of codes. */
export function preparePairs(pairs: usize, pairContext: usize): void {
  let largest: f32 = 0;
  for (let code: usize = 0; code < 16; ++code) {
    const value = pairs + (code << 3);
    store<u8>(pairContext + code, load<u8>(value, 2), At.Third);
    store<u8>(pairContext + code, load<u8>(value, 3), At.Fourth);
    largest = max(largest, abs(load<f32>(value)));
  }
  store<f32>(pairContext, largest, At.Largest);
  store<u8>(pairContext, 15, At.Half);
  store<u32>(pairContext, 0x7fffffff, At.Magnitude);
  store<u32>(pairContext, 0, At.Changed);
}

/** Returns the number of values that changed, and resets it. */
export function takeChanged(pairContext: usize): u32 {
  const changed = load<u32>(pairContext, At.Changed);
  store<u32>(pairContext, 0, At.Changed);
  return changed;
}

/** The four bf16 words in the lower half of a vector as f32. */
function lowFloats(words: v128, zero: v128): v128 {
  return i16x8.shuffle(zero, words, 0, 8, 1, 9, 2, 10, 3, 11);
}

function highFloats(words: v128, zero: v128): v128 {
  return i16x8.shuffle(zero, words, 4, 12, 5, 13, 6, 14, 7, 15);
}

/**
 * Compares values with their codes, sixteen at a time, from index `i` on, a multiple of 16. Each `width` elements, a multiple of
 * 16, share a scale. Returns the index of the first group of sixteen that is incomplete or not settled. Adds the squares of
 * settled values to the tally of the run.
 */
export function settledPairs<V>(run: Run, i: u32): u32 {
  const x = run.x;
  const codes = run.codes;
  const count = run.count;
  const scales = run.scales;
  const width = run.width;
  const pairContext = run.pairContext;
  const max = run.max;
  const relative = run.relative;
  const exempt = run.exempt;
  const tally = run.tally;
  const third = v128.load(pairContext, At.Third);
  const fourth = v128.load(pairContext, At.Fourth);
  const half = v128.load8_splat(pairContext, At.Half);
  const magnitude = v128.load32_splat(pairContext, At.Magnitude);
  const largest = load<f32>(pairContext, At.Largest);
  const zero = i32x4.splat(0);
  const margin = f32x4.splat(1 + 8 * ROUNDED);
  let noise = f64x2.splat(0);
  let signal = f64x2.splat(0);
  let changed: u32 = 0;
  let block = i / width;
  let remaining = width - (i - block * width);
  for (; i + 16 <= count; i += 16) {
    const scale = load<f32>(scales + ((<usize>block) << 2));
    if (!isFiltered(scale)) break;
    const scales4 = f32x4.splat(scale);
    const rounded = roundedShare(scale);
    const pairs = v128.load64_zero(codes + (<usize>i >> 1));
    const even = v128.and(pairs, half);
    const odd = v128.and(i16x8.shr_u(pairs, 4), half);
    const nibbles = i8x16.shuffle(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const lower = i8x16.swizzle(third, nibbles);
    const upper = i8x16.swizzle(fourth, nibbles);
    const low = i8x16.shuffle(lower, upper, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const high = i8x16.shuffle(lower, upper, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const p0 = f32x4.mul(lowFloats(low, zero), scales4);
    const p1 = f32x4.mul(highFloats(low, zero), scales4);
    const p2 = f32x4.mul(lowFloats(high, zero), scales4);
    const p3 = f32x4.mul(highFloats(high, zero), scales4);
    const x0 = fourValues<V>(x, i);
    const x1 = fourValues<V>(x, i + 4);
    const x2 = fourValues<V>(x, i + 8);
    const x3 = fourValues<V>(x, i + 12);
    const d0 = v128.and(f32x4.sub(x0, p0), magnitude);
    const d1 = v128.and(f32x4.sub(x1, p1), magnitude);
    const d2 = v128.and(f32x4.sub(x2, p2), magnitude);
    const d3 = v128.and(f32x4.sub(x3, p3), magnitude);
    // ignore NaN differences: pmax(m, v) is m if v is NaN
    const maxDifference = f32x4.pmax(f32x4.pmax(f32x4.pmax(f32x4.pmax(zero, d0), d1), d2), d3);
    // |x| is at most the largest product plus the difference
    const bound = f32x4.add(f32x4.mul(maxDifference, margin), f32x4.splat(largest * abs(scale) * rounded));
    const open01 = v128.or(
      isOpen(p0, d0, v128.and(x0, magnitude), relative, exempt),
      isOpen(p1, d1, v128.and(x1, magnitude), relative, exempt),
    );
    const open23 = v128.or(
      isOpen(p2, d2, v128.and(x2, magnitude), relative, exempt),
      isOpen(p3, d3, v128.and(x3, magnitude), relative, exempt),
    );
    const sum = f32x4.add(f32x4.add(d0, d1), f32x4.add(d2, d3));
    const exceeds = v128.or(f32x4.ne(sum, sum), f32x4.gt(bound, max));
    if (v128.any_true(v128.or(exceeds, v128.or(open01, open23)))) break;
    const s0 = f32x4.eq(x0, p0);
    const s1 = f32x4.eq(x1, p1);
    const s2 = f32x4.eq(x2, p2);
    const s3 = f32x4.eq(x3, p3);
    if (v128.any_true(v128.or(v128.or(s0, s1), v128.or(s2, s3)))) {
      // a rounded product may equal the value although the exact product does not
      if (rounded !== 0) break;
      const equalMask = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(s0, s1), i16x8.narrow_i32x4_s(s2, s3));
      changed -= popcnt(<u32>i8x16.bitmask(equalMask));
    }
    noise = addSquares(addSquares(addSquares(addSquares(noise, d0), d1), d2), d3);
    signal = addSquares(addSquares(addSquares(addSquares(signal, x0), x1), x2), x3);
    changed += 16;
    remaining -= 16;
    if (remaining === 0) {
      remaining = width;
      ++block;
    }
  }
  store<u32>(pairContext, load<u32>(pairContext, At.Changed) + changed, At.Changed);
  addTo(tally + TallyAt.Noise, noise);
  addTo(tally + TallyAt.Signal, signal);
  return i;
}
