// The encoding loops that most casts and quantizers use. Each multiplies optionally and then rounds with ties to even, 16
// elements per iteration. Type parameters select the variant at compile time:
// - M, how multipliers are loaded: u32, one for each block of 16 << shift elements; v128, one per element; u8, none.
// - S, how 16 codes are stored: v128, one byte each; u64, four bits each.
// - B, the number of mantissa bits: u8, three, so that the shift by them is a constant, which saves V8 three instructions per
//   use; u32, the number in the encoder.
// - D, how encodeGroups computes elements: u8, by the multipliers of M; u32, by the scaling of the encoder, with M = u32.
//
// A loop records in the encoder whether it met values that it encodes incorrectly. The caller checks this record and
// encodes such a run again by another loop.

import { ElementScaling, Wide } from "../contract";
import { At } from "./encoder";

/** The bits of the largest |x| that encodeBf16 encodes correctly. Larger magnitudes round to infinity or are NaN. */
export const BF16_LIMIT: u32 = 0x7f7f7fff;

/** The bits of 2^-125. For factors of at least this, 1.5 * 2^127 times the factor is at least 6, the largest number of FP4. */
const BOUNDED_BELOW: u32 = 0x01000000;

/** The encoder's ElementScaling bits, without Typed if the input is f32: its elements need no rounding to its type. */
export function fusedScaling(encoder: usize): u32 {
  const scaling = load<u32>(encoder, At.Scaling);
  return load<u32>(encoder, At.SourceType) === Wide.F32 ? scaling & ~ElementScaling.Typed : scaling;
}

/** Returns four elements, each times its own multiplier. */
function scaled<M>(x: usize, multiplier: usize): v128 {
  if (sizeof<M>() === 1) return v128.load(x);
  return f32x4.mul(v128.load(x), sizeof<M>() === 16 ? v128.load(multiplier) : v128.load32_splat(multiplier));
}

/** As `scaled`. If M = u32, `factor` holds the multiplier of the block in every lane, which the caller has loaded. */
function scaledBy<M>(x: usize, multiplier: usize, factor: v128): v128 {
  return sizeof<M>() === 4 ? f32x4.mul(v128.load(x), factor) : scaled<M>(x, multiplier);
}

function multiplierOf<M>(multipliers: usize, group: i32, shift: i32): usize {
  return multipliers + (sizeof<M>() === 16 ? (<usize>group) << 6 : (<usize>group >> shift) << 2);
}

/** Distance in bytes between the multipliers of consecutive groups of four elements. */
function step<M>(): usize {
  return sizeof<M>() === 16 ? 16 : 0;
}

/**
 * Four values rounded to bf16, as f32, by Veltkamp's splitting: `splitter` is 2^16 + 1. Values from 2^-126 up to 2^111 are
 * rounded correctly, ties to even. Smaller ones stay below 2^-125, and larger ones may become NaN, which encodeGroups encodes as
 * the largest number.
 */
function splitBf16(v: v128, splitter: v128): v128 {
  const p = f32x4.mul(v, splitter);
  return f32x4.add(f32x4.sub(v, p), p);
}

/**
 * The code of magnitude `a` plus At.Bias, which the caller subtracts. For magnitudes far beyond the format's range the
 * result may be negative or any number above the largest code (encodeGroups).
 */
function magic<B>(a: v128, minNormal: v128, exponentMask: v128, lift: v128, shift: i32): v128 {
  const e = v128.and(i32x4.max_s(a, minNormal), exponentMask);
  const c = i32x4.add(e, lift);
  return i32x4.add(i32x4.sub(f32x4.add(a, c), c), i32x4.shr_u(e, sizeof<B>() === 1 ? 20 : shift));
}

/** Clamps the magnitudes of four elements to 1.5 * 2^127; NaN is unchanged. */
export function bounded(v: v128): v128 {
  const bound = reinterpret<f32>(0x7f400000);
  return f32x4.pmax(f32x4.pmin(v, f32x4.splat(bound)), f32x4.splat(-bound));
}

/**
 * Rounds four values to bf16 in the upper halves of the lanes. NaN stays NaN if its last 16 bits are zeros, so that no carry
 * leaves them.
 */
function nearestBf16(v: v128, half: v128, one: v128): v128 {
  const odd = v128.and(i32x4.shr_u(v, 16), one);
  return i32x4.add(i32x4.add(v, half), odd);
}

/** Rounds four values to bf16, as f32. NaN is treated as in nearestBf16. */
export function toBf16(v: v128, half: v128, one: v128, upperMask: v128): v128 {
  return v128.and(nearestBf16(v, half, one), upperMask);
}

/**
 * The neighbours toward zero of magnitudes whose last bit is 0, as in every tie. No code and no other tie lies between a tie and
 * its neighbours. A product with `shrink`, 1 - 2^-24, is the neighbour of a normal number toward zero. Zero stays below all ties.
 */
function belowTie(a: v128, shrink: v128, one: v128): v128 {
  return v128.or(f32x4.mul(a, shrink), one);
}

/**
 * Encodes to codes of up to 8 bits, saturating. NaN is encoded incorrectly; `metNaN` detects it. With D = u32, elements are
 * computed by the encoder's ElementScaling bits, where Typed means bf16.
 *
 * A code that is too large stays too large while it is narrowed to a byte. A large i32 narrows to the i16 32767, which minus the
 * bias (128 to 16384) still exceeds 255. For the largest magnitudes and for NaN, C overflows to a negative number, which narrows
 * to -32768; minus the bias, this wraps around to a number above 255. Therefore codes are clamped last, 16 at a time. A byte of
 * 255 before the clamp may come from a NaN.
 */
export function encodeGroups<M, S, B, D>(
  encoder: usize,
  x: usize,
  dst: usize,
  groups: i32,
  multipliers: usize,
): void {
  const shift = load<i32>(encoder, At.MultiplierShift) - 4;
  const scaling = sizeof<D>() === 4 ? fusedScaling(encoder) : 0;
  const one = v128.load(encoder, At.One);
  const splitter = f32x4.splat(65537);
  const shrink = f32x4.splat(reinterpret<f32>(0x3f7fffff));
  const isTyped = (scaling & ElementScaling.Typed) !== 0;
  const half = i32x4.splat(0x8000);
  const upper = i32x4.splat(0x7fff0000);
  const least = f32x4.splat(isTyped ? reinterpret<f32>(0x80008000) : 0);
  const magnitude = v128.load(encoder, At.Magnitude);
  const minNormal = v128.load(encoder, At.MinNormal);
  const exponentMask = v128.load(encoder, At.ExponentMask);
  const lift = v128.load(encoder, At.Lift);
  const bias = v128.load(encoder, At.Bias16);
  const sign = v128.load(encoder, At.Sign8);
  const maxCode = v128.load(encoder, At.MaxCode8);
  const lowByte = v128.load(encoder, At.LowByte);
  const mantissa = load<i32>(encoder, At.Shift);
  const zero = i32x4.splat(0);
  let largestCodes = zero;
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    const factor = sizeof<M>() === 4 ? v128.load32_splat(m) : largestCodes;
    let x0: v128;
    let x1: v128;
    let x2: v128;
    let x3: v128;
    if (sizeof<D>() === 1) {
      x0 = scaledBy<M>(x, m, factor);
      x1 = scaledBy<M>(x + 16, m + step<M>(), factor);
      x2 = scaledBy<M>(x + 32, m + 2 * step<M>(), factor);
      x3 = scaledBy<M>(x + 48, m + 3 * step<M>(), factor);
    } else {
      x0 = v128.load(x);
      x1 = v128.load(x, 16);
      x2 = v128.load(x, 32);
      x3 = v128.load(x, 48);
      // without the bound larger elements saturate too; only FP4 needs it
      if (scaling & ElementScaling.Bounded && load<u32>(m) < BOUNDED_BELOW) {
        x0 = bounded(x0);
        x1 = bounded(x1);
        x2 = bounded(x2);
        x3 = bounded(x3);
      }
      if (scaling & ElementScaling.Divides) {
        x0 = f32x4.div(x0, factor);
        x1 = f32x4.div(x1, factor);
        x2 = f32x4.div(x2, factor);
        x3 = f32x4.div(x3, factor);
      } else {
        x0 = f32x4.mul(x0, factor);
        x1 = f32x4.mul(x1, factor);
        x2 = f32x4.mul(x2, factor);
        x3 = f32x4.mul(x3, factor);
      }
    }
    let a0: v128;
    let a1: v128;
    let a2: v128;
    let a3: v128;
    // factors of e8m0 scales are powers of two: the products are bf16 numbers, or round to code 0
    if (sizeof<D>() === 1 || !isTyped || !(scaling & ElementScaling.Divides)) {
      a0 = v128.and(x0, magnitude);
      a1 = v128.and(x1, magnitude);
      a2 = v128.and(x2, magnitude);
      a3 = v128.and(x3, magnitude);
    } else if (load<u16>(m) === 0) {
      // a quotient of two bf16 numbers is never a tie, which has nine significant bits
      a0 = v128.and(i32x4.add(x0, half), upper);
      a1 = v128.and(i32x4.add(x1, half), upper);
      a2 = v128.and(i32x4.add(x2, half), upper);
      a3 = v128.and(i32x4.add(x3, half), upper);
    } else {
      a0 = v128.and(splitBf16(x0, splitter), magnitude);
      a1 = v128.and(splitBf16(x1, splitter), magnitude);
      a2 = v128.and(splitBf16(x2, splitter), magnitude);
      a3 = v128.and(splitBf16(x3, splitter), magnitude);
    }
    if (sizeof<D>() === 4) {
      // the sign before zero is added; up to 2^-134, bf16 rounds to zero
      if (scaling & ElementScaling.AddsZero) {
        x0 = f32x4.lt(x0, least);
        x1 = f32x4.lt(x1, least);
        x2 = f32x4.lt(x2, least);
        x3 = f32x4.lt(x3, least);
      }
      if (scaling & ElementScaling.TiesToZero) {
        a0 = belowTie(a0, shrink, one);
        a1 = belowTie(a1, shrink, one);
        a2 = belowTie(a2, shrink, one);
        a3 = belowTie(a3, shrink, one);
      } else if (scaling & ElementScaling.TiesToAway) {
        // the neighbours away from zero; infinity becomes NaN, which is encoded as the largest number
        a0 = v128.or(a0, one);
        a1 = v128.or(a1, one);
        a2 = v128.or(a2, one);
        a3 = v128.or(a3, one);
      }
    }
    const low = i16x8.narrow_i32x4_s(
      magic<B>(a0, minNormal, exponentMask, lift, mantissa),
      magic<B>(a1, minNormal, exponentMask, lift, mantissa),
    );
    const high = i16x8.narrow_i32x4_s(
      magic<B>(a2, minNormal, exponentMask, lift, mantissa),
      magic<B>(a3, minNormal, exponentMask, lift, mantissa),
    );
    // narrowing saturates, so it keeps the signs
    const s = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(x0, x1), i16x8.narrow_i32x4_s(x2, x3));
    const unbounded = i8x16.narrow_i16x8_u(i16x8.sub(low, bias), i16x8.sub(high, bias));
    largestCodes = i8x16.max_u(largestCodes, unbounded);
    const magnitudes = i8x16.min_u(unbounded, maxCode);
    let signs = v128.and(i8x16.lt_s(s, zero), sign);
    if (sizeof<D>() === 4) {
      if (scaling & ElementScaling.PlusZero) signs = v128.andnot(signs, i8x16.eq(magnitudes, zero));
      // after narrowing, only +0 is zero
      else if (scaling & ElementScaling.MinusZero) signs = v128.or(signs, v128.and(i8x16.eq(s, zero), sign));
    }
    const codes = v128.or(magnitudes, signs);
    if (sizeof<S>() === 16) {
      v128.store(dst, codes);
      dst += 16;
    } else {
      // packs the byte pair 0000_hhhh 0000_llll to hhhh_llll
      const pairs = v128.and(v128.or(codes, i16x8.shr_u(codes, 4)), lowByte);
      v128.store64_lane(dst, i8x16.narrow_i16x8_u(pairs, pairs), 0);
      dst += 8;
    }
    x += 64;
  }
  v128.store(encoder, largestCodes, At.Seen);
}

/**
 * Whether x ⊗ multiplier, or with `divides` x / multiplier, is NaN for an element of the run that encodeGroups has just encoded.
 */
export function metNaN<M>(encoder: usize, x: usize, groups: i32, multipliers: usize, divides: bool): bool {
  if (!v128.any_true(i8x16.eq(v128.load(encoder, At.Seen), i8x16.splat(-1)))) return false;
  const shift = load<i32>(encoder, At.MultiplierShift) - 4;
  let unordered = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    for (let i: usize = 0; i < 4; ++i) {
      const at = x + (i << 4);
      const v = divides ? f32x4.div(v128.load(at), v128.load32_splat(m)) : scaled<M>(at, m + i * step<M>());
      unordered = v128.or(unordered, f32x4.ne(v, v));
    }
    x += 64;
  }
  return v128.any_true(unordered);
}

function roundBf16(x: v128, half: v128, one: v128): v128 {
  return i32x4.shr_s(nearestBf16(x, half, one), 16);
}

/** Encodes to bf16. The codes are incorrect if lastSeen(encoder) exceeds BF16_LIMIT. */
export function encodeBf16<M>(encoder: usize, x: usize, dst: usize, groups: i32, multipliers: usize): void {
  const shift = load<i32>(encoder, At.MultiplierShift) - 4;
  const magnitude = v128.load(encoder, At.Magnitude);
  const half = v128.load(encoder, At.HalfBf16);
  const one = v128.load(encoder, At.One);
  let largestBits = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    const x0 = scaled<M>(x, m);
    const x1 = scaled<M>(x + 16, m + step<M>());
    const x2 = scaled<M>(x + 32, m + 2 * step<M>());
    const x3 = scaled<M>(x + 48, m + 3 * step<M>());
    const a01 = i32x4.max_s(v128.and(x0, magnitude), v128.and(x1, magnitude));
    const a23 = i32x4.max_s(v128.and(x2, magnitude), v128.and(x3, magnitude));
    largestBits = i32x4.max_s(largestBits, i32x4.max_s(a01, a23));
    v128.store(dst, i16x8.narrow_i32x4_s(roundBf16(x0, half, one), roundBf16(x1, half, one)));
    v128.store(dst, i16x8.narrow_i32x4_s(roundBf16(x2, half, one), roundBf16(x3, half, one)), 16);
    x += 64;
    dst += 32;
  }
  v128.store(encoder, largestBits, At.Seen);
}
