// Scales elements to the range of their format by more than one multiplication (contract.ts, ElementScaling). Scaled elements are
// then encoded without a multiplier.

import { encodeComputed, encodeRun, RUN } from "../cast/cast";
import { At } from "../cast/encoder";
import { bounded, fusedScaling, toBf16 } from "../cast/fast";
import { ElementScaling, Wide } from "../contract";
import { decode } from "../core/minifloat";
import { roundFour } from "../core/wide";

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

/** The term that is added to scaled elements: 0, or -0, which changes nothing. */
function addendOf(encoder: usize): v128 {
  return f32x4.splat(load<u32>(encoder, At.Scaling) & ElementScaling.AddsZero ? <f32>0 : <f32>-0.0);
}

/** The Wide type to which scaled elements are rounded; f32 if they are not rounded. */
function roundedType(encoder: usize): u32 {
  return load<u32>(encoder, At.Scaling) & ElementScaling.Typed ? load<u32>(encoder, At.SourceType) : Wide.F32;
}

/**
 * Writes x[i] times its factor, or divided by it, to dst[i], for `count` elements, a multiple of 4. M = u32: the factor is at
 * index i >> s, where s is At.MultiplierShift, at least 2; M = v128: at index i. D is u32 for a division, else u8. T is the type
 * that results are rounded to: u8 none, u16 bf16, u32 f16.
 */
function scaleSpans<M, D, T>(encoder: usize, x: usize, dst: usize, count: i32, factors: usize): void {
  const shift = load<i32>(encoder, At.MultiplierShift);
  const zero = addendOf(encoder);
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

function scaleTyped<M, D>(encoder: usize, x: usize, dst: usize, count: i32, factors: usize): void {
  const type = roundedType(encoder);
  if (type === Wide.F32) scaleSpans<M, D, u8>(encoder, x, dst, count, factors);
  else if (type === Wide.Bf16) scaleSpans<M, D, u16>(encoder, x, dst, count, factors);
  else scaleSpans<M, D, u32>(encoder, x, dst, count, factors);
}

/** Scales one element of scaleRun, in the first lane. */
function scaleOne(encoder: usize, x: usize, factor: usize): v128 {
  const v = v128.load32_splat(x);
  const factorLanes = v128.load32_splat(factor);
  const divides = (load<u32>(encoder, At.Scaling) & ElementScaling.Divides) !== 0;
  const scaled = divides ? f32x4.div(v, factorLanes) : f32x4.mul(v, factorLanes);
  return f32x4.add(roundFour(roundedType(encoder), scaled), addendOf(encoder));
}

/**
 * Writes `count` elements x[i], multiplied or divided by their factors, to `dst`, which may be x. Factors are as in encodeRun<M>.
 * `count` is a multiple of 16 or below 16; if it is below 16 and M = u32, all elements have the first factor.
 */
function scaleRun<M>(encoder: usize, x: usize, dst: usize, count: i32, factors: usize): void {
  const scaling = load<u32>(encoder, At.Scaling);
  if (scaling & ElementScaling.Bounded) {
    boundRun(x, dst, count);
    x = dst;
  }
  const vectorCount = count & -4;
  if (scaling & ElementScaling.Divides) scaleTyped<M, u32>(encoder, x, dst, vectorCount, factors);
  else scaleTyped<M, u8>(encoder, x, dst, vectorCount, factors);
  for (let i = vectorCount; i < count; ++i) {
    const at = (<usize>i) << 2;
    const factor = factors + (sizeof<M>() === 16 ? at : 0);
    v128.store32_lane(dst + at, scaleOne(encoder, x + at, factor), 0);
  }
  if (scaling & SETTLES) settleRun(dst, count, scaling, load<u32>(encoder, At.Word));
}

/**
 * Encodes `count` f32 values at `x` to `dst`. Elements are multiplied as in `encodeRun<M>`, or are scaled as in `scaleRun<M>` to
 * the buffer At.Result, which may be `x` itself if `x` may be overwritten.
 */
export function encodeScaled<M>(encoder: usize, x: usize, dst: usize, count: i32, factors: usize): void {
  if (!isComputed(load<u32>(encoder, At.Scaling))) {
    encodeRun<M>(encoder, x, dst, count, factors);
    return;
  }
  const isRounded = (fusedScaling(encoder) & ElementScaling.Typed) !== 0;
  const fuses = sizeof<M>() === 4 && !(isRounded && load<u32>(encoder, At.SourceType) === Wide.F16);
  const storage = load<u32>(encoder, At.Storage);
  const shift = load<i32>(encoder, At.MultiplierShift);
  const random = load<usize>(encoder, At.Random);
  const randomShift = load<u32>(encoder, At.RandomShift);
  const result = load<usize>(encoder, At.Result);
  for (let i = 0; i < count; ) {
    const remaining = min(count - i, RUN);
    const vectorCount = remaining & -16;
    const run = vectorCount > 0 ? vectorCount : remaining;
    const at = (<usize>i) << 2;
    const elementFactors = factors + (sizeof<M>() === 16 ? at : (<usize>i >> shift) << 2);
    const to = dst + (((<usize>i) << storage) >> 3);
    if (!(fuses && vectorCount > 0 && encodeComputed(encoder, x + at, to, run, elementFactors))) {
      scaleRun<M>(encoder, x + at, result + at, run, elementFactors);
      store<usize>(encoder, random + ((<usize>i) << randomShift), At.Random);
      encodeRun<u8>(encoder, result + at, to, run, 0);
    }
    i += run;
  }
}
