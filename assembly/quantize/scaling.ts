// Scales elements to the range of their format by more than one multiplication (contract.ts, ElementScaling). Scaled elements are
// then encoded without a multiplier.

import { encodeComputed, encodeRun, RUN } from "../cast/cast";
import { At } from "../cast/encoder";
import { bounded, toBf16 } from "../cast/fast";
import { ElementScaling, Wide } from "../contract";
import { decode } from "../core/minifloat";
import { roundFour } from "../core/wide";

/** The shift for a single factor, whatever the length of a run. */
export const SINGLE_FACTOR_SHIFT: i32 = 31;

/** Whether elements are computed before they are encoded. */
function isComputed(scaling: u32): bool {
  return (
    (scaling &
      (ElementScaling.Divides |
        ElementScaling.Typed |
        ElementScaling.AddsZero |
        ElementScaling.Bounded |
        SETTLES)) !==
    0
  );
}

/** The bits that determine the rounding of ties and zeros. */
const SETTLES: u32 =
  ElementScaling.TiesToZero | ElementScaling.TiesToAway | ElementScaling.PlusZero | ElementScaling.MinusZero;

/**
 * Adjusts `count` computed elements so that rounding to the nearest code of format `word`, ties to even, treats ties and zeros as
 * the ElementScaling bits in `scaling` require.
 */
function settleRun(x: usize, count: i32, scaling: u32, word: u32): void {
  const half = f32x4.splat(reinterpret<f32>(decode(1, word)) * 0.5);
  const step = i32x4.splat(
    scaling & ElementScaling.TiesToZero ? -1 : scaling & ElementScaling.TiesToAway ? 1 : 0,
  );
  const minus = i32x4.splat(scaling & ElementScaling.MinusZero ? 0x80000000 : 0);
  const keeps = i32x4.splat(scaling & ElementScaling.PlusZero ? 0 : -1);
  for (const end = x + ((<usize>(count & -4)) << 2); x < end; x += 16)
    v128.store(x, settled(v128.load(x), half, step, minus, keeps));
  for (const end = x + ((<usize>(count & 3)) << 2); x < end; x += 4)
    v128.store32_lane(x, settled(v128.load32_splat(x), half, step, minus, keeps), 0);
}

/**
 * Adjusts four elements of settleRun. A tie has zeros in its last bits, and no code or other tie lies between it and its
 * neighbours, whose last bits are ones.
 */
function settled(v: v128, half: v128, step: v128, minus: v128, keeps: v128): v128 {
  const isZero = f32x4.eq(v, f32x4.splat(0));
  const isEven = i32x4.eq(v128.and(v, i32x4.splat(1)), i32x4.splat(0));
  const isKept = v128.or(isZero, f32x4.eq(f32x4.abs(v), f32x4.splat(Infinity)));
  v = i32x4.add(v, v128.andnot(v128.and(step, isEven), isKept));
  v = v128.or(v, v128.and(minus, isZero));
  const kept = v128.or(keeps, f32x4.gt(f32x4.abs(v), half));
  return v128.and(v, v128.or(kept, f32x4.ne(v, v)));
}

/** Clamps the magnitudes of `count` elements to 1.5 * 2^127. Writes them to `dst`, which may be x. */
function boundRun(x: usize, dst: usize, count: i32): void {
  for (const end = x + ((<usize>(count & -4)) << 2); x < end; x += 16, dst += 16)
    v128.store(dst, bounded(v128.load(x)));
  for (const end = x + ((<usize>(count & 3)) << 2); x < end; x += 4, dst += 4)
    v128.store32_lane(dst, bounded(v128.load32_splat(x)), 0);
}

/**
 * Writes x[i] times its factor, or divided by it, to dst[i], for `count` elements, a multiple of 4. M = u32: the factor is at
 * index i >> shift, with shift at least 2; M = v128: at index i. D is u32 for a division, else u8. T is the type that results are
 * rounded to: u8 none, u16 bf16, u32 f16. `zero` is added to all results: 0, or -0, which changes nothing.
 */
function scaleSpans<M, D, T>(
  x: usize,
  dst: usize,
  count: i32,
  factors: usize,
  shift: i32,
  zero: v128,
  encoder: usize,
): void {
  const half = v128.load(encoder, At.HalfBf16);
  const one = v128.load(encoder, At.One);
  const kept = v128.load(encoder, At.UpperHalf);
  const end = x + ((<usize>count) << 2);
  const span = sizeof<M>() === 16 || shift > 28 ? <usize>0x7fffffff : (<usize>4) << shift;
  while (x < end) {
    let factor = v128.load32_splat(factors);
    for (const stop = end - x < span ? end : x + span; x < stop; x += 16) {
      if (sizeof<M>() === 16) {
        factor = v128.load(factors);
        factors += 16;
      }
      const v = v128.load(x);
      let y = sizeof<D>() === 4 ? f32x4.div(v, factor) : f32x4.mul(v, factor);
      if (sizeof<T>() === 2) y = v128.bitselect(y, toBf16(y, half, one, kept), f32x4.ne(y, y));
      if (sizeof<T>() === 4) y = roundFour(Wide.F16, y);
      v128.store(dst, f32x4.add(y, zero));
      dst += 16;
    }
    factors += 4;
  }
}

function scaleTyped<M, D>(
  x: usize,
  dst: usize,
  count: i32,
  factors: usize,
  shift: i32,
  zero: v128,
  type: u32,
  encoder: usize,
): void {
  if (type === Wide.F32) scaleSpans<M, D, u8>(x, dst, count, factors, shift, zero, encoder);
  else if (type === Wide.Bf16) scaleSpans<M, D, u16>(x, dst, count, factors, shift, zero, encoder);
  else scaleSpans<M, D, u32>(x, dst, count, factors, shift, zero, encoder);
}

/** Scales one element of scaleRun, in the first lane. */
function scaleOne(x: usize, factor: usize, zero: v128, divides: bool, rounded: u32): v128 {
  const v = v128.load32_splat(x);
  const factorLanes = v128.load32_splat(factor);
  return f32x4.add(roundFour(rounded, divides ? f32x4.div(v, factorLanes) : f32x4.mul(v, factorLanes)), zero);
}

/**
 * Writes `count` elements x[i], multiplied or divided by their factors, to `dst`, which may be x. M is as in encodeRun: with u32
 * the factor is at index i >> shift, with shift at least 4; with v128 at index i. `count` is a multiple of 16 or below 16; in the
 * latter case with u32 all elements have the first factor. `type` is the Wide type of the input, `word` the format of the codes,
 * `encoder` any prepared encoder.
 */
function scaleRun<M>(
  x: usize,
  dst: usize,
  count: i32,
  factors: usize,
  shift: i32,
  scaling: u32,
  type: u32,
  word: u32,
  encoder: usize,
): void {
  const zero = f32x4.splat(scaling & ElementScaling.AddsZero ? <f32>0 : <f32>-0.0);
  const divides = (scaling & ElementScaling.Divides) !== 0;
  const rounded = scaling & ElementScaling.Typed ? type : Wide.F32;
  if (scaling & ElementScaling.Bounded) {
    boundRun(x, dst, count);
    x = dst;
  }
  const vectorCount = count & -4;
  if (divides) scaleTyped<M, u32>(x, dst, vectorCount, factors, shift, zero, rounded, encoder);
  else scaleTyped<M, u8>(x, dst, vectorCount, factors, shift, zero, rounded, encoder);
  for (let i = vectorCount; i < count; ++i) {
    const at = (<usize>i) << 2;
    const factor = factors + (sizeof<M>() === 16 ? at : 0);
    v128.store32_lane(dst + at, scaleOne(x + at, factor, zero, divides, rounded), 0);
  }
  if (scaling & SETTLES) settleRun(dst, count, scaling, word);
}

/**
 * Encodes `count` f32 values at `x` to `dst`. Elements are multiplied as in `encodeRun<M>`, or computed as in `scaleRun<M>` in
 * the buffer `result`, which may be `x` itself if that may change.
 */
export function encodeScaled<M>(
  x: usize,
  result: usize,
  dst: usize,
  count: i32,
  factors: usize,
  shift: i32,
  scaling: u32,
  type: u32,
  word: u32,
  encoder: usize,
  random: usize,
  codes: usize,
): void {
  if (!isComputed(scaling)) {
    encodeRun<M>(x, dst, count, encoder, factors, shift, random, codes);
    return;
  }
  // f32 results need no rounding to the input type
  const fused = type === Wide.F32 ? scaling & ~ElementScaling.Typed : scaling;
  const fuses = sizeof<M>() === 4 && !(fused & ElementScaling.Typed && type === Wide.F16);
  const storage = load<u32>(encoder, At.Storage);
  for (let i = 0; i < count; ) {
    const remaining = min(count - i, RUN);
    const vectorCount = remaining & -16;
    const run = vectorCount > 0 ? vectorCount : remaining;
    const at = (<usize>i) << 2;
    const elementFactors = factors + (sizeof<M>() === 16 ? at : (<usize>i >> shift) << 2);
    const to = dst + (((<usize>i) << storage) >> 3);
    if (
      !(fuses && vectorCount > 0 && encodeComputed(x + at, to, run, encoder, elementFactors, shift, fused))
    ) {
      scaleRun<M>(x + at, result + at, run, elementFactors, shift, scaling, type, word, encoder);
      const draws = random + ((<usize>i) << load<u32>(encoder, At.RandomShift));
      encodeRun<u8>(result + at, to, run, encoder, 0, SINGLE_FACTOR_SHIFT, draws, codes);
    }
    i += run;
  }
}
