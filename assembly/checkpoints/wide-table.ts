// Tables of each code times a scale, rounded to f32 or bf16, so that each product is computed once. The exact product is rounded
// to f32 and then, for bf16, to bf16, ties to even; a NaN is 0x7fc00000 or 0x7fc0.

import { Wide } from "../contract";
import { fold } from "./octaves";

/** Byte offsets of the fields of a table of 256 codes (4-bit codes use 16). */
export const enum TableAt {
  /** The result for each code as a u32; bf16 in the lower half. */
  Words = 0,
  /** The words of 16 codes as four vectors of 16 bytes: byte 0 of all words, byte 1, byte 2, byte 3. */
  Planes = 1024,
  /** The folded table, for 256 codes in bf16 (octaves.ts). */
  Folded = 1088,
}

/**
 * Fills the table of `count` codes, a multiple of four, with f64 values at `values`, for one scale. Returns 1 if rounding changes
 * a value, else 0.
 */
export function wideTable(values: usize, count: u32, scale: f32, type: u32, table: usize): u32 {
  const scales = f64x2.splat(scale);
  let any = i64x2.splat(0);
  for (let code: usize = 0; code < <usize>count; code += 4) {
    const low = f64x2.mul(v128.load(values + (code << 3)), scales);
    const high = f64x2.mul(v128.load(values + (code << 3), 16), scales);
    const four = i64x2.shuffle(f32x4.demote_f64x2_zero(low), f32x4.demote_f64x2_zero(high), 0, 2);
    const unordered = f32x4.ne(four, four);
    let words = v128.bitselect(i32x4.splat(0x7fc00000), four, unordered);
    let rounded = four;
    if (type === Wide.Bf16) {
      const odd = v128.and(i32x4.shr_u(four, 16), i32x4.splat(1));
      words = i32x4.shr_u(i32x4.add(i32x4.add(four, i32x4.splat(0x7fff)), odd), 16);
      words = v128.bitselect(i32x4.splat(0x7fc0), words, unordered);
      rounded = i32x4.shl(words, 16);
    }
    v128.store(table + (code << 2), words, TableAt.Words);
    const lowAfter = f64x2.promote_low_f32x4(rounded);
    const highAfter = f64x2.promote_low_f32x4(i64x2.shuffle(rounded, rounded, 1, 1));
    const lowChanged = v128.and(f64x2.ne(low, lowAfter), f64x2.eq(low, low));
    const highChanged = v128.and(f64x2.ne(high, highAfter), f64x2.eq(high, high));
    any = v128.or(any, v128.or(lowChanged, highChanged));
  }
  for (let code: usize = 0; code < 16; ++code)
    for (let byte: usize = 0; byte < 4; ++byte)
      store<u8>(table + TableAt.Planes + (byte << 4) + code, load<u8>(table + (code << 2) + byte));
  if (count === 256 && type === Wide.Bf16) fold(table + TableAt.Words, table + TableAt.Folded);
  return <u32>v128.any_true(any);
}

/** Writes the element of one of eight codes; code 0 is the lowest byte of `codes`. */
function put<D>(dst: usize, table: usize, codes: u64, at: u64): void {
  const code = <usize>((codes >> (8 * at)) & 0xff);
  const to = dst + <usize>at * sizeof<D>();
  if (sizeof<D>() === 2) store<u16>(to, load<u16>(table + (code << 2)));
  else store<u32>(to, load<u32>(table + (code << 2)));
}

/** Writes the elements of a run of codes. */
export function widenRun<D>(codes: usize, count: usize, table: usize, dst: usize): void {
  let i: usize = 0;
  for (; i + 8 <= count; i += 8) {
    const eight = load<u64>(codes + i);
    const to = dst + i * sizeof<D>();
    put<D>(to, table, eight, 0);
    put<D>(to, table, eight, 1);
    put<D>(to, table, eight, 2);
    put<D>(to, table, eight, 3);
    put<D>(to, table, eight, 4);
    put<D>(to, table, eight, 5);
    put<D>(to, table, eight, 6);
    put<D>(to, table, eight, 7);
  }
  for (; i < count; ++i) put<D>(dst + i * sizeof<D>(), table, load<u8>(codes + i), 0);
}
