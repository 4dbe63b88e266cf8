// The encoding loops that most casts and quantizers run in: ties to even, 16 elements a turn, a multiplier
// before the rounding. Two type parameters choose among them at compile time:
//   M, what one load of multipliers covers: u32, one for a block of 16 << shift elements; v128, one each; u8,
//      there are none.
//   S, what one store writes for 16 codes: v128, a byte each; u64, four bits each.
// Where lastSeen(encoder) then exceeds the loop's limit, what it wrote may be wrong, and the caller encodes
// again another way.

import { At } from "./encoder";

/** Largest |x| that encodeGroups gets right: all but NaN. */
export const GROUPS_LIMIT: u32 = 0x7f800000;
/** Largest |x| that encodeBf16 gets right: what rounds to finite values. */
export const BF16_LIMIT: u32 = 0x7f7f7fff;

function scaled<M>(x: usize, multiplier: usize): v128 {
  if (sizeof<M>() == 1) return v128.load(x);
  return f32x4.mul(v128.load(x), sizeof<M>() == 16 ? v128.load(multiplier) : v128.load32_splat(multiplier));
}

function multiplierOf<M>(multipliers: usize, group: i32, shift: i32): usize {
  return multipliers + (sizeof<M>() == 16 ? <usize>group << 6 : (<usize>group >> shift) << 2);
}

/** Bytes from the multipliers of four elements to those of the next four. */
function step<M>(): usize {
  return sizeof<M>() == 16 ? 16 : 0;
}

/** The code of a clamped magnitude, the bias still in it. */
function magic(a: v128, minNormal: v128, exponentMask: v128, lift: v128, shift: i32): v128 {
  const e = v128.and(i32x4.max_s(a, minNormal), exponentMask);
  const c = i32x4.add(e, lift);
  return i32x4.add(i32x4.sub(f32x4.add(a, c), c), i32x4.shr_u(e, shift));
}

/** Codes of up to 8 bits, saturating. */
export function encodeGroups<M, S>(
  x: usize,
  dst: usize,
  groups: i32,
  encoder: usize,
  multipliers: usize,
  shift: i32,
): void {
  const magnitude = v128.load(encoder, At.Magnitude);
  const clamp = v128.load(encoder, At.Clamp);
  const minNormal = v128.load(encoder, At.MinNormal);
  const exponentMask = v128.load(encoder, At.ExponentMask);
  const lift = v128.load(encoder, At.Lift);
  const bias = v128.load(encoder, At.Bias16);
  const sign = v128.load(encoder, At.Sign8);
  const lowByte = v128.load(encoder, At.LowByte);
  const mantissa = load<i32>(encoder, At.Shift);
  let seen = i32x4.splat(0);
  for (let g = 0; g < groups; ++g) {
    const m = multiplierOf<M>(multipliers, g, shift);
    const x0 = scaled<M>(x, m);
    const x1 = scaled<M>(x + 16, m + step<M>());
    const x2 = scaled<M>(x + 32, m + 2 * step<M>());
    const x3 = scaled<M>(x + 48, m + 3 * step<M>());
    const a0 = v128.and(x0, magnitude);
    const a1 = v128.and(x1, magnitude);
    const a2 = v128.and(x2, magnitude);
    const a3 = v128.and(x3, magnitude);
    seen = i32x4.max_s(seen, i32x4.max_s(i32x4.max_s(a0, a1), i32x4.max_s(a2, a3)));
    const low = i16x8.narrow_i32x4_s(
      magic(i32x4.min_s(a0, clamp), minNormal, exponentMask, lift, mantissa),
      magic(i32x4.min_s(a1, clamp), minNormal, exponentMask, lift, mantissa),
    );
    const high = i16x8.narrow_i32x4_s(
      magic(i32x4.min_s(a2, clamp), minNormal, exponentMask, lift, mantissa),
      magic(i32x4.min_s(a3, clamp), minNormal, exponentMask, lift, mantissa),
    );
    // saturation keeps the signs
    const s = i8x16.narrow_i16x8_s(i16x8.narrow_i32x4_s(x0, x1), i16x8.narrow_i32x4_s(x2, x3));
    const codes = v128.or(
      i8x16.narrow_i16x8_u(i16x8.sub(low, bias), i16x8.sub(high, bias)),
      v128.and(i8x16.lt_s(s, i8x16.splat(0)), sign),
    );
    if (sizeof<S>() == 16) {
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

function roundBf16(x: v128, half: v128, one: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), one);
  return i32x4.shr_s(i32x4.add(i32x4.add(x, half), odd), 16);
}

/** bf16 codes. */
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
