// Runs of wide elements to f32 and back, four or eight at a time; element by element they are loadWide and
// storeWide.

import { Wide } from "./contract";
import { loadWide, storeWide, wideBytes } from "./wide";

/** Writes elements [first, first + count) of `src` to `dst` as f32. */
export function widen(src: usize, type: u32, first: usize, count: i32, dst: usize): void {
  const from = src + first * wideBytes(type);
  let i = 0;
  if (type === Wide.F32) {
    memory.copy(dst, from, (<usize>count) << 2);
    return;
  }
  const whole = count & -8;
  if (type === Wide.Bf16) {
    for (; i < whole; i += 8) {
      const v = v128.load(from + ((<usize>i) << 1));
      const zero = i16x8.splat(0);
      v128.store(dst + ((<usize>i) << 2), i16x8.shuffle(zero, v, 0, 8, 1, 9, 2, 10, 3, 11));
      v128.store(dst + ((<usize>i) << 2), i16x8.shuffle(zero, v, 4, 12, 5, 13, 6, 14, 7, 15), 16);
    }
  } else {
    for (; i < whole; i += 4) v128.store(dst + ((<usize>i) << 2), widenF16(from + ((<usize>i) << 1)));
  }
  for (; i < count; ++i) store<f32>(dst + ((<usize>i) << 2), loadWide(from, type, i));
}

function widenF16(from: usize): v128 {
  const code = v128.load16x4_u(from);
  const sign = i32x4.shl(v128.and(code, i32x4.splat(0x8000)), 16);
  // A subnormal's field becomes an f32 subnormal, so one exact product by 2^112 serves them all.
  const magnitude = i32x4.shl(v128.and(code, i32x4.splat(0x7fff)), 13);
  const value = f32x4.mul(magnitude, i32x4.splat(0x77800000));
  const special = f32x4.ge(value, f32x4.splat(65536.0));
  return v128.or(v128.or(value, sign), v128.and(special, i32x4.splat(0x7f800000)));
}

/** The elements as f32: where they lie when they are f32 already, else widened into `buffer`. */
export function asF32(src: usize, type: u32, first: usize, count: i32, buffer: usize): usize {
  if (type === Wide.F32) return src + (first << 2);
  widen(src, type, first, count, buffer);
  return buffer;
}

/** Rounds `count` f32 at `src` to elements [first, first + count) of `dst`. */
export function narrow(src: usize, count: i32, dst: usize, type: u32, first: usize): void {
  const to = dst + first * wideBytes(type);
  if (type === Wide.F32) {
    if (to !== src) memory.copy(to, src, (<usize>count) << 2);
    return;
  }
  let i = 0;
  if (type === Wide.Bf16) {
    for (const whole = count & -8; i < whole; i += 8) {
      const p = src + ((<usize>i) << 2);
      v128.store(to + ((<usize>i) << 1), i16x8.narrow_i32x4_s(narrowBf16(p), narrowBf16(p + 16)));
    }
  }
  for (; i < count; ++i) storeWide(to, type, i, load<f32>(src + ((<usize>i) << 2)));
}

/** Four bf16 codes as signed i32. */
function narrowBf16(from: usize): v128 {
  const v = v128.load(from);
  const odd = v128.and(i32x4.shr_u(v, 16), i32x4.splat(1));
  const rounded = i32x4.shr_s(i32x4.add(i32x4.add(v, i32x4.splat(0x7fff)), odd), 16);
  return v128.bitselect(i32x4.splat(0x7fff), rounded, f32x4.ne(v, v));
}
