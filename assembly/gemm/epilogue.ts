// The epilogue of a matrix product. It applies scale, beta and bias to the sums of products in f32, with one rounding per
// operation (one fused multiply-add for scale and beta), and then rounds to the output format.

import { Rounding, Wide } from "../contract";
import { decode, encode, magnitudeBits } from "../core/minifloat";
import { canonical, canonicalFour, loadWide, narrow } from "../core/wide";
import { fma32 } from "./datapath";
import { wideTypeOf } from "./decode-line";
import { EpilogueTask, hasLineScales, scaledByAmaxes, scaledByLines } from "./task";

/** Returns fma(s, acc, +0): the rounded product. If the exact product is zero, the result is +0. */
function productOf(s: f32, acc: f32): f32 {
  const product = s * acc;
  return product === 0 && (s === 0 || acc === 0) ? 0 : product;
}

/**
 * Returns s * acc + beta * C by one fused multiply-add: fma(beta, C, s * acc) with split-K, and fma(s, acc, beta * C)
 * without. If beta is 0, C does not matter: the result is s * acc with split-K, and fma(s, acc, +0) without.
 */
function combine(acc: f32, s: f32, c: f32, beta: f32, split: bool): f32 {
  if (beta === 0) return split ? s * acc : productOf(s, acc);
  return split ? fma32(beta, c, s * acc) : fma32(s, acc, beta * c);
}

/**
 * As combine, for a sum that was multiplied by the scales of its row and column. Split-K does not change the result. With alpha
 * 1 and beta 0, the result is the sum.
 */
function combineLined(acc: f32, alpha: f32, c: f32, beta: f32): f32 {
  return beta === 0 && alpha === 1 ? acc : combine(acc, alpha, c, beta, false);
}

/** Rounds x to the 16-bit result format `word`, as f32. Results of another width are not rounded before C is added. */
function roundedAs(x: f32, word: u32, overflow: i32): f32 {
  if (word === 0 || magnitudeBits(word) < 8) return x;
  return reinterpret<f32>(decode(encode(reinterpret<u32>(x), word, Rounding.TiesToEven, overflow, 0), word));
}

/**
 * Returns element [row, j] of a product with amaxes of lines: `p`, the sum with its scales and alpha, times both amaxes, plus
 * bias; then C is added to the rounded result (numerics.md §5.10).
 */
function finishLines(task: EpilogueTask, p: f32, row: usize, j: usize, c: f32): f32 {
  const beta = task.beta;
  const bias = task.bias;
  let x = scaledByAmaxes(task, p, row, j);
  if (bias) x += loadWide(bias, task.biasType, j);
  return beta === 0 ? x : beta * c + roundedAs(x, task.targetWord, task.targetOverflow);
}

/**
 * Atomically replaces the f32 at `pointer` by `amax` if `amax` is larger. Both are bit patterns of non-negative floats, which
 * compare like the floats.
 */
function raise(pointer: usize, amax: u32): void {
  let expected = atomic.load<u32>(pointer);
  while (expected < amax) {
    const current = atomic.cmpxchg<u32>(pointer, expected, amax);
    if (current === expected) return;
    expected = current;
  }
}

/**
 * target[i] = combine(acc[i], s) with beta 0, for `count` f32; a NaN becomes 0x7fffffff. Returns the bits of the
 * largest |target[i]|, NaN ignored, or 0.
 */
function scaleRow(acc: usize, s: f32, count: usize, target: usize, split: bool): u32 {
  const factor = f32x4.splat(s);
  const zero = f32x4.splat(0);
  const zeroFactor = f32x4.eq(factor, zero);
  const fused = split ? zero : i32x4.splat(-1);
  const magnitude = i32x4.splat(0x7fffffff);
  const vectorBytes = (count & ~3) << 2;
  let largest = i32x4.splat(0);
  for (let i: usize = 0; i < vectorBytes; i += 16) {
    const sums = v128.load(acc + i);
    const product = v128.mul<f32>(factor, sums);
    const exact = v128.and(v128.or(f32x4.eq(sums, zero), zeroFactor), f32x4.eq(product, zero));
    const x = v128.andnot(product, v128.and(exact, fused));
    const size = v128.and(x, magnitude);
    largest = v128.max<i32>(largest, v128.and(size, v128.eq<f32>(x, x)));
    v128.store(target + i, canonicalFour(x));
  }
  const even = max(i32x4.extract_lane(largest, 0), i32x4.extract_lane(largest, 2));
  const odd = max(i32x4.extract_lane(largest, 1), i32x4.extract_lane(largest, 3));
  let amax = <u32>max(even, odd);
  for (let i = vectorBytes; i < count << 2; i += 4) {
    const x = combine(load<f32>(acc + i), s, 0, 0, split);
    if (!isNaN(x)) amax = max(amax, reinterpret<u32>(x) & 0x7fffffff);
    store<f32>(target + i, canonical(x));
  }
  return amax;
}

/**
 * Computes rows [begin, end) of D from the f32 sums that `gemm` wrote.
 */
export function gemmEpilogue(task: EpilogueTask, begin: u32, end: u32): void {
  const columns = <usize>task.columns;
  const hasScales = hasLineScales(task);
  const amaxes = task.hasLineAmaxes;
  const s = task.alpha * task.scaleA * task.scaleB;
  const beta = task.beta;
  const split = task.splits > 1;
  const bias = task.bias;
  const word = task.targetWord;
  const target = task.target;
  const type = wideTypeOf(word);
  const plain = !hasScales && !amaxes && beta === 0 && bias === 0 && type >= 0;
  let amax: u32 = 0;
  for (let row: usize = begin; row < end; row++) {
    if (plain) {
      const acc = task.output + ((row * columns) << 2);
      const scaled = type === Wide.F32 ? target + ((row * columns) << 2) : acc;
      amax = max(amax, scaleRow(acc, s, columns, scaled, split));
      if (type !== Wide.F32) narrow(acc, target, type, row * columns, columns);
      continue;
    }
    for (let j: usize = 0; j < columns; j++) {
      const index = row * columns + j;
      const c: f32 = beta === 0 ? 0 : loadWide(task.addend, task.addendType, index);
      const acc = load<f32>(task.output + (index << 2));
      const betaBefore: f32 = amaxes ? 0 : beta;
      let x: f32 = hasScales
        ? combineLined(scaledByLines(task, acc, row, j), s, c, betaBefore)
        : combine(acc, s, c, betaBefore, split);
      if (amaxes) x = finishLines(task, x, row, j, c);
      else if (bias) x += loadWide(bias, task.biasType, j);
      if (!isNaN(x)) amax = max(amax, reinterpret<u32>(x) & 0x7fffffff);
      if (word === 0) store<f32>(target + (index << 2), canonical(x));
      else {
        const scaled = reinterpret<u32>(x * task.targetScale);
        const code = encode(scaled, word, Rounding.TiesToEven, task.targetOverflow, 0);
        if (magnitudeBits(word) < 8) store<u8>(target + index, code);
        else store<u16>(target + (index << 1), code);
      }
    }
  }
  if (task.amax) raise(task.amax, amax);
}
