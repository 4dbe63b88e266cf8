// Encoding loops for every rounding mode and overflow policy: two SIMD loops, and one loop for every format that
// encodes one element at a time. They write 32-bit codes to a buffer; `pack` converts these to their stored size. The
// type parameter M selects how multipliers are loaded, as in cast/fast.ts, but a block that shares a multiplier has 1
// << shift elements. `random` holds 16 random bits per element.

import { Rounding } from "../contract";
import { encode } from "../core/minifloat";
import { At } from "./encoder";

/** The bits of the largest |x| that encodeMagic and encodeAligned encode correctly: the largest finite f32. */
export const EXACT_LIMIT: u32 = 0x7f7fffff;

function multiplierAt<M>(multipliers: usize, index: i32, shift: i32): usize {
  return multipliers + ((sizeof<M>() === 16 ? <usize>index : <usize>index >> shift) << 2);
}

function scaled<M>(x: usize, multipliers: usize, index: i32, shift: i32): v128 {
  if (sizeof<M>() === 1) return v128.load(x + ((<usize>index) << 2));
  const m = multiplierAt<M>(multipliers, index, shift);
  return f32x4.mul(
    v128.load(x + ((<usize>index) << 2)),
    sizeof<M>() === 16 ? v128.load(m) : v128.load32_splat(m),
  );
}

/** Applies the overflow policy and the sign of x to rounded magnitude codes. */
function finish(code: v128, negative: v128, encoder: usize): v128 {
  const over = i32x4.gt_s(code, v128.load(encoder, At.MaxCode));
  const beyond = v128.bitselect(
    v128.load(encoder, At.NegativeOver),
    v128.load(encoder, At.PositiveOver),
    negative,
  );
  const bounded = v128.bitselect(beyond, code, over);
  const keepsSign = v128.or(i32x4.ne(code, i32x4.splat(0)), v128.load(encoder, At.SignedZero));
  const signs = v128.and(v128.and(negative, keepsSign), v128.load(encoder, At.Sign));
  const complement = v128.and(negative, v128.load(encoder, At.Complement));
  const stored = i32x4.sub(v128.xor(bounded, complement), complement);
  return v128.or(v128.and(stored, v128.load(encoder, At.Code)), signs);
}

/**
 * Returns -1 in the lanes whose code, rounded to nearest even, decreases by 1 under the encoder's rounding mode. `below` and
 * `negative` are lane masks. `below`: |x| is less than the rounded magnitude. `negative`: x is negative.
 */
function downOf(encoder: usize, below: v128, negative: v128): v128 {
  const downs = v128.bitselect(
    v128.load(encoder, At.NegativeDown),
    v128.load(encoder, At.PositiveDown),
    negative,
  );
  return v128.and(below, downs);
}

/**
 * Returns -1 in the lanes whose code increases by 1 under the encoder's rounding mode. `above` and `tie` are lane masks. `above`:
 * |x| is greater than the rounded magnitude. `tie`: |x| is greater by exactly half an ulp.
 */
function upOf(encoder: usize, above: v128, tie: v128, negative: v128): v128 {
  const ups = v128.bitselect(v128.load(encoder, At.NegativeUp), v128.load(encoder, At.PositiveUp), negative);
  return v128.or(v128.and(above, ups), v128.and(tie, v128.load(encoder, At.TieUp)));
}

/** Sets the last bit of inexact codes if the encoder rounds to odd. */
function roundToOdd(encoder: usize, code: v128, inexact: v128): v128 {
  return v128.or(code, v128.and(inexact, v128.load(encoder, At.Odd)));
}

/**
 * Writes 32-bit codes to At.Codes, four elements per iteration, in formats with `Loop.Magic`. The codes of infinities and NaNs
 * are wrong; lastSeen(encoder) tells whether there were any.
 */
export function encodeMagic<M>(encoder: usize, x: usize, count: i32, multipliers: usize): void {
  const codes = load<usize>(encoder, At.Codes);
  const shift = load<i32>(encoder, At.MultiplierShift);
  const random = load<usize>(encoder, At.Random);
  const stochastic = load<i32>(encoder, At.Rounding) === Rounding.Stochastic;
  const mantissa = load<i32>(encoder, At.Shift);
  const magnitude = v128.load(encoder, At.Magnitude);
  let largestBits = i32x4.splat(0);
  for (let i = 0; i < count; i += 4) {
    const v = scaled<M>(x, multipliers, i, shift);
    const negative = i32x4.shr_s(v, 31);
    const bits = v128.and(v, magnitude);
    largestBits = i32x4.max_s(largestBits, bits);
    const a = i32x4.min_s(bits, v128.load(encoder, At.Clamp));
    const e = v128.and(i32x4.max_s(a, v128.load(encoder, At.MinNormal)), v128.load(encoder, At.ExponentMask));
    const c = i32x4.add(e, v128.load(encoder, At.Lift));
    const y = f32x4.add(a, c);
    const rounded = f32x4.sub(y, c);
    const error = f32x4.sub(a, rounded); // exact
    const below = f32x4.lt(error, f32x4.splat(0));
    const above = f32x4.gt(error, f32x4.splat(0));
    const tie = f32x4.eq(error, i32x4.sub(c, i32x4.splat(24 << 23))); // c * 2^-24 is half an ulp
    let code = i32x4.add(i32x4.sub(y, c), i32x4.shr_u(e, mantissa));
    code = i32x4.sub(code, v128.load(encoder, At.Bias));
    code = i32x4.sub(i32x4.add(code, downOf(encoder, below, negative)), upOf(encoder, above, tie, negative));
    code = roundToOdd(encoder, code, v128.or(below, above));
    if (stochastic) {
      // fraction = dropped * 2^16 / ulp, where ulp = c * 2^-23 and c is a power of two. The factor of dropped
      // is therefore 2^39 / c, whose exponent field is 39 + 254 - field(c) = 293 - field(c).
      const ulp = i32x4.sub(c, i32x4.splat(23 << 23));
      const dropped = f32x4.sub(a, f32x4.sub(rounded, v128.and(ulp, below)));
      const fraction = f32x4.mul(dropped, i32x4.sub(i32x4.splat(293 << 23), c));
      const draw = v128.load16x4_u(random + ((<usize>i) << 1));
      code = i32x4.sub(code, i32x4.lt_s(draw, i32x4.trunc_sat_f32x4_s(fraction)));
    }
    v128.store(codes + ((<usize>i) << 2), finish(code, negative, encoder));
  }
  v128.store(encoder, largestBits, At.Seen);
}

/**
 * As encodeMagic, in formats with `Loop.Aligned`. At.Floor is subtracted from the magnitudes that are recorded in
 * At.Seen.
 */
export function encodeAligned<M>(encoder: usize, x: usize, count: i32, multipliers: usize): void {
  const codes = load<usize>(encoder, At.Codes);
  const shift = load<i32>(encoder, At.MultiplierShift);
  const random = load<usize>(encoder, At.Random);
  const stochastic = load<i32>(encoder, At.Rounding) === Rounding.Stochastic;
  const drop = load<i32>(encoder, At.Shift);
  const half = i32x4.splat(1 << (drop - 1));
  const magnitude = v128.load(encoder, At.Magnitude);
  const one = i32x4.splat(1);
  const floor = v128.load(encoder, At.Floor);
  let largestBits = i32x4.splat(0);
  for (let i = 0; i < count; i += 4) {
    const v = scaled<M>(x, multipliers, i, shift);
    const negative = i32x4.shr_s(v, 31);
    const a = v128.and(v, magnitude);
    largestBits = i32x4.max_u(largestBits, i32x4.sub(a, floor)); // magnitudes below the floor wrap around to large numbers
    const odd = v128.and(i32x4.shr_u(a, drop), one);
    let code = i32x4.shr_u(i32x4.add(i32x4.add(a, i32x4.sub(half, one)), odd), drop);
    const error = i32x4.sub(a, i32x4.shl(code, drop));
    const below = i32x4.lt_s(error, i32x4.splat(0));
    const above = i32x4.gt_s(error, i32x4.splat(0));
    const up = upOf(encoder, above, i32x4.eq(error, half), negative);
    code = i32x4.sub(i32x4.add(code, downOf(encoder, below, negative)), up);
    code = roundToOdd(encoder, code, v128.or(below, above));
    if (stochastic) {
      const dropped = i32x4.add(error, v128.and(below, i32x4.add(half, half)));
      const fraction = drop > 16 ? i32x4.shr_u(dropped, drop - 16) : i32x4.shl(dropped, 16 - drop);
      const draw = v128.load16x4_u(random + ((<usize>i) << 1));
      code = i32x4.sub(code, i32x4.lt_s(draw, fraction));
    }
    v128.store(codes + ((<usize>i) << 2), finish(code, negative, encoder));
  }
  v128.store(encoder, largestBits, At.Seen);
}

/**
 * The 32 random bits of element i. A 16-bit random number, which is compared with a 16-bit fraction, is converted to bits whose
 * sum with the fraction carries if and only if the number is below the fraction.
 */
function randomAt(random: usize, i: i32, shift: u32): u32 {
  const at = random + ((<usize>i) << shift);
  return shift === 2 ? load<u32>(at) : (0xffff - <u32>load<u16>(at)) << 16;
}

/** Encodes one element at a time, in any format. Every value is encoded correctly. */
export function encodeEach<M>(encoder: usize, x: usize, count: i32, multipliers: usize): void {
  const codes = load<usize>(encoder, At.Codes);
  const shift = load<i32>(encoder, At.MultiplierShift);
  const random = load<usize>(encoder, At.Random);
  const word = load<u32>(encoder, At.Word);
  const rounding = load<i32>(encoder, At.Rounding);
  const overflow = load<i32>(encoder, At.Overflow);
  const stochastic = rounding === Rounding.Stochastic;
  for (let i = 0; i < count; ++i) {
    let value = load<f32>(x + ((<usize>i) << 2));
    if (sizeof<M>() !== 1) value *= load<f32>(multiplierAt<M>(multipliers, i, shift));
    const bits = stochastic ? randomAt(random, i, load<u32>(encoder, At.RandomShift)) : 0;
    store<u32>(codes + ((<usize>i) << 2), encode(reinterpret<u32>(value), word, rounding, overflow, bits));
  }
}

/**
 * Converts `count` 32-bit codes to their stored size. If the number of 4-bit codes is odd, a zero code fills the last
 * byte.
 */
export function pack(codes: usize, dst: usize, count: i32, storage: u32): void {
  if (storage === 5) {
    memory.copy(dst, codes, (<usize>count) << 2);
    return;
  }
  let i = 0;
  if (storage === 4) {
    for (; i + 8 <= count; i += 8) {
      const p = codes + ((<usize>i) << 2);
      v128.store(dst + ((<usize>i) << 1), i16x8.narrow_i32x4_u(v128.load(p), v128.load(p, 16)));
    }
    for (; i < count; ++i) store<u16>(dst + ((<usize>i) << 1), load<u32>(codes + ((<usize>i) << 2)));
    return;
  }
  for (; i + 16 <= count; i += 16) {
    const p = codes + ((<usize>i) << 2);
    const low = i16x8.narrow_i32x4_u(v128.load(p), v128.load(p, 16));
    const high = i16x8.narrow_i32x4_u(v128.load(p, 32), v128.load(p, 48));
    const bytes = i8x16.narrow_i16x8_u(low, high);
    if (storage === 3) v128.store(dst + <usize>i, bytes);
    else {
      const pairs = v128.and(v128.or(bytes, i16x8.shr_u(bytes, 4)), i16x8.splat(0xff));
      v128.store64_lane(dst + (<usize>i >> 1), i8x16.narrow_i16x8_u(pairs, pairs), 0);
    }
  }
  if (storage === 3) for (; i < count; ++i) store<u8>(dst + <usize>i, load<u32>(codes + ((<usize>i) << 2)));
  else {
    for (; i < count; i += 2) {
      const p = codes + ((<usize>i) << 2);
      const high = i + 1 < count ? load<u32>(p, 4) << 4 : 0;
      store<u8>(dst + (<usize>i >> 1), load<u32>(p) | high);
    }
  }
}
