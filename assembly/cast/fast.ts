// The encoding loops that most casts and quantizers run in: ties to even, 16 elements a turn, a multiplier
// before the rounding. Two type parameters choose among them at compile time:
//   M, what one load of multipliers covers: u32, one for a block of 16 << shift elements; v128, one each; u8,
//      there are none.
//   S, what one store writes for 16 codes: v128, a byte each; u64, four bits each.
//   B, the mantissa bits: u8, three, so that their shift is a constant, which saves V8 three instructions a time;
//      u32, what the encoder says.
// Values that a loop gets wrong leave a trace in the encoder: the caller looks, and encodes again another way.

import { At } from "./encoder";

/** Largest |x| that encodeBf16 gets right: what rounds to finite values. */
export const BF16_LIMIT: u32 = 0x7f7f7fff;

/** Four elements, multiplied. */
function scaled<M>(x: usize, multiplier: usize): v128 {
  if (sizeof<M>() === 1) return v128.load(x);
  return f32x4.mul(v128.load(x), sizeof<M>() === 16 ? v128.load(multiplier) : v128.load32_splat(multiplier));
}

/** Four elements, multiplied, where `factor` is a block's multiplier, loaded once. */
function scaledBy<M>(x: usize, multiplier: usize, factor: v128): v128 {
  return sizeof<M>() === 4 ? f32x4.mul(v128.load(x), factor) : scaled<M>(x, multiplier);
}

function multiplierOf<M>(multipliers: usize, group: i32, shift: i32): usize {
  return multipliers + (sizeof<M>() === 16 ? (<usize>group) << 6 : (<usize>group >> shift) << 2);
}

/** Bytes from the multipliers of four elements to those of the next four. */
function step<M>(): usize {
  return sizeof<M>() === 16 ? 16 : 0;
}

/** The code of a magnitude, the bias still in it. Far beyond the format's range it lies outside of i16 or above 255. */
function magic<B>(a: v128, minNormal: v128, exponentMask: v128, lift: v128, shift: i32): v128 {
  const e = v128.and(i32x4.max_s(a, minNormal), exponentMask);
  const c = i32x4.add(e, lift);
  return i32x4.add(i32x4.sub(f32x4.add(a, c), c), i32x4.shr_u(e, sizeof<B>() === 1 ? 20 : shift));
}

/**
 * Codes of up to 8 bits, saturating. Wrong for NaN, which `metNaN` tells.
 *
 * Too large a code stays too large on the way to a byte: what narrows to 32767 is above 255 less the bias, which is
 * between 128 and 16384, and what narrows to -32768, as C wraps around for the largest values and for NaN, wraps
 * around once more. So magnitudes are bounded last, 16 at a time, and a byte of 255 before that may be a NaN.
 */
export function encodeGroups<M, S, B>(
  x: usize,
  dst: usize,
  groups: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
): void {
  const magnitude = v128.load(encoder, At.Magnitude);
  const minNormal = v128.load(encoder, At.MinNormal);
  const exponentMask = v128.load(encoder, At.ExponentMask);
  const lift = v128.load(encoder, At.Lift);
  const bias = v128.load(encoder, At.Bias16);
  const sign = v128.load(encoder, At.Sign8);
  const maxCode = v128.load(encoder, At.MaxCode8);
  const lowByte = v128.load(encoder, At.LowByte);
  const mantissa = load<i32>(encoder, At.Shift);
  let seen = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    const factor = sizeof<M>() === 4 ? v128.load32_splat(m) : seen;
    const x0 = scaledBy<M>(x, m, factor);
    const x1 = scaledBy<M>(x + 16, m + step<M>(), factor);
    const x2 = scaledBy<M>(x + 32, m + 2 * step<M>(), factor);
    const x3 = scaledBy<M>(x + 48, m + 3 * step<M>(), factor);
    const low = i16x8.narrow_i32x4_s(
      magic<B>(v128.and(x0, magnitude), minNormal, exponentMask, lift, mantissa),
      magic<B>(v128.and(x1, magnitude), minNormal, exponentMask, lift, mantissa),
    );
    const high = i16x8.narrow_i32x4_s(
      magic<B>(v128.and(x2, magnitude), minNormal, exponentMask, lift, mantissa),
      magic<B>(v128.and(x3, magnitude), minNormal, exponentMask, lift, mantissa),
    );
    // saturation keeps the signs
    const s = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(x0, x1), i16x8.narrow_i32x4_s(x2, x3));
    const unbounded = i8x16.narrow_i16x8_u(i16x8.sub(low, bias), i16x8.sub(high, bias));
    seen = i8x16.max_u(seen, unbounded);
    const codes = v128.or(i8x16.min_u(unbounded, maxCode), v128.and(i8x16.lt_s(s, i8x16.splat(0)), sign));
    if (sizeof<S>() === 16) {
      v128.store(dst, codes);
      dst += 16;
    } else {
      // 0000_hhhh_0000_llll becomes hhhh_llll
      const pairs = v128.and(v128.or(codes, i16x8.shr_u(codes, 4)), lowByte);
      v128.store64_lane(dst, i8x16.narrow_i16x8_u(pairs, pairs), 0);
      dst += 8;
    }
    x += 64;
  }
  v128.store(encoder, seen, At.Seen);
}

/** Whether a run that encodeGroups has just encoded has a NaN, after its multiplier. */
export function metNaN<M>(x: usize, groups: i32, encoder: usize, multipliers: usize, shift: i32): bool {
  if (!v128.any_true(i8x16.eq(v128.load(encoder, At.Seen), i8x16.splat(-1)))) return false;
  let unordered = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    for (let i: usize = 0; i < 4; ++i) {
      const v = scaled<M>(x + (i << 4), m + i * step<M>());
      unordered = v128.or(unordered, f32x4.ne(v, v));
    }
    x += 64;
  }
  return v128.any_true(unordered);
}

function roundBf16(x: v128, half: v128, one: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), one);
  return i32x4.shr_s(i32x4.add(i32x4.add(x, half), odd), 16);
}

/** bf16 codes; wrong where lastSeen(encoder) exceeds BF16_LIMIT. */
export function encodeBf16<M>(
  x: usize,
  dst: usize,
  groups: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
): void {
  const magnitude = v128.load(encoder, At.Magnitude);
  const half = v128.load(encoder, At.HalfBf16);
  const one = v128.load(encoder, At.One);
  let seen = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    const x0 = scaled<M>(x, m);
    const x1 = scaled<M>(x + 16, m + step<M>());
    const x2 = scaled<M>(x + 32, m + 2 * step<M>());
    const x3 = scaled<M>(x + 48, m + 3 * step<M>());
    const a01 = i32x4.max_s(v128.and(x0, magnitude), v128.and(x1, magnitude));
    const a23 = i32x4.max_s(v128.and(x2, magnitude), v128.and(x3, magnitude));
    seen = i32x4.max_s(seen, i32x4.max_s(a01, a23));
    v128.store(dst, i16x8.narrow_i32x4_s(roundBf16(x0, half, one), roundBf16(x1, half, one)));
    v128.store(dst, i16x8.narrow_i32x4_s(roundBf16(x2, half, one), roundBf16(x3, half, one)), 16);
    x += 64;
    dst += 32;
  }
  v128.store(encoder, seen, At.Seen);
}
