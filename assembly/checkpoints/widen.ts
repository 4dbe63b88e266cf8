// Codes times a scale in f32 or bf16, by a table of the codes for each scale: what one code becomes is computed once. The exact
// product is rounded to f32 and, for bf16, that to bf16, ties to even; a NaN is 0x7fc00000 or 0x7fc0.

import { Wide } from "../contract";
import { fold, gives, isFolded, putFolded } from "./octaves";

/** Byte offsets of the fields of a table of 256 codes, of which those of four bits use 16. */
const enum TableAt {
  /** The u32 that each code becomes; of bf16 the lower half. */
  Words = 0,
  /** 0xff for each code whose value changes, else 0. */
  Changed = 1024,
  /** The f64 difference of each code. */
  Differences = 1280,
  /** The f64 difference of each code, relative to the value before. */
  Quotients = 3328,
  /** Bytes 0 to 3 of the words of 16 codes, each 16 bytes. */
  Planes = 5376,
  /** The table folded, of 256 codes in bf16 (octaves.ts). */
  Folded = 5440,
}

/** What is to be known of the elements under a scale. */
const enum Asks {
  /** How many change. */
  Count = 1,
  /** Also which codes occur. */
  Mark = 2,
}

/**
 * Fills a table of `count` codes, whose f64 values are at `values`, under one scale. A value that becomes infinite has an
 * infinite difference. Returns 1 if a value changes, else 0.
 */
export function wideTable(values: usize, count: u32, scale: f32, type: u32, table: usize): u32 {
  let any: u32 = 0;
  for (let code: usize = 0; code < <usize>count; ++code) {
    const value = load<f64>(values + (code << 3)) * <f64>scale;
    const bits = reinterpret<u32>(<f32>value);
    const unordered = isNaN(value);
    let word = unordered ? 0x7fc00000 : bits;
    let after = <f32>value;
    if (type === Wide.Bf16) {
      word = unordered ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      after = reinterpret<f32>(word << 16);
    }
    const changed = !unordered && value !== <f64>after;
    const difference = changed ? abs(value - <f64>after) : 0;
    store<u32>(table + (code << 2), word, TableAt.Words);
    store<u8>(table + code, changed ? 0xff : 0, TableAt.Changed);
    store<f64>(table + (code << 3), difference, TableAt.Differences);
    store<f64>(table + (code << 3), changed ? difference / abs(value) : 0, TableAt.Quotients);
    if (code < 16)
      for (let byte: usize = 0; byte < 4; ++byte)
        store<u8>(table + TableAt.Planes + (byte << 4) + code, word >> (8 * <u32>byte));
    if (changed) any = 1;
  }
  if (count === 256 && type === Wide.Bf16)
    fold(table + TableAt.Words, table + TableAt.Changed, table + TableAt.Folded);
  return any;
}

/** One element of eight codes, the lowest byte of `codes` first. */
function put<D>(dst: usize, table: usize, codes: u64, at: u64): void {
  const code = <usize>((codes >> (8 * at)) & 0xff);
  const to = dst + <usize>at * sizeof<D>();
  if (sizeof<D>() === 2) store<u16>(to, load<u16>(table + (code << 2)));
  else store<u32>(to, load<u32>(table + (code << 2)));
}

/** Writes a run, and returns how many of its values change. */
function foldedRun(codes: usize, count: usize, table: usize, dst: usize): u32 {
  let changed: u32 = 0;
  let i: usize = 0;
  for (; i + 16 <= count; i += 16) {
    const sixteen = v128.load(codes + i);
    const to = dst + (i << 1);
    if (gives(table + TableAt.Folded, sixteen)) changed += putFolded(sixteen, table + TableAt.Folded, to);
    else {
      widenRun<u16>(codes + i, 16, table, to);
      changed += countRun(codes + i, 16, table);
    }
  }
  widenRun<u16>(codes + i, count - i, table, dst + (i << 1));
  return changed + countRun(codes + i, count - i, table);
}

function widenRun<D>(codes: usize, count: usize, table: usize, dst: usize): void {
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

/** The number of codes that change. */
function countRun(codes: usize, count: usize, table: usize): u32 {
  let changed: u32 = 0;
  for (let i: usize = 0; i < count; ++i)
    changed += load<u8>(table + <usize>load<u8>(codes + i), TableAt.Changed) & 1;
  return changed;
}

function markRun(codes: usize, count: usize, marks: usize): void {
  for (let i: usize = 0; i < count; ++i) store<u8>(marks + <usize>load<u8>(codes + i), 1);
}

/** One run under one table. Returns how many values change, 0 unless that is asked. */
function run(codes: usize, count: usize, table: usize, asks: u32, marks: usize, dst: usize, type: u32): u32 {
  if (asks === Asks.Mark) markRun(codes, count, marks);
  if (type === Wide.Bf16 && isFolded(table + TableAt.Folded)) {
    const changed = foldedRun(codes, count, table, dst);
    return asks ? changed : 0;
  }
  if (type === Wide.F32) widenRun<u32>(codes, count, table, dst);
  else widenRun<u16>(codes, count, table, dst);
  return asks ? countRun(codes, count, table) : 0;
}

/**
 * Writes a block of codes of one byte, `rows` rows of `width` that are `pitch` elements apart, here and there. `asks`: 0, or 1 to
 * count values that change, or 2 to also set the byte of `marks` of each code that occurs. Returns the count.
 */
export function widenBlock(
  codes: usize,
  rows: u32,
  width: u32,
  pitch: u32,
  table: usize,
  asks: u32,
  marks: usize,
  dst: usize,
  type: u32,
): u32 {
  const bytes: usize = type === Wide.F32 ? 4 : 2;
  let changed: u32 = 0;
  for (let row: u32 = 0; row < rows; ++row) {
    const at = <usize>row * pitch;
    changed += run(codes + at, width, table, asks, marks, dst + at * bytes, type);
  }
  return changed;
}

/**
 * Writes groups of `width` codes of one byte, each under a scale of one byte: the table of scale s is at tables + s * stride,
 * asks[s] is what is asked as in `widenBlock`, and its marks are at marks + 256 * s. Returns how many values change.
 */
export function widenGroups(
  codes: usize,
  groups: u32,
  width: u32,
  scales: usize,
  tables: usize,
  stride: u32,
  asks: usize,
  marks: usize,
  dst: usize,
  type: u32,
): u32 {
  const bytes: usize = type === Wide.F32 ? 4 : 2;
  let changed: u32 = 0;
  for (const end = scales + groups; scales < end; ++scales) {
    const scale = <usize>load<u8>(scales);
    const asked = <u32>load<u8>(asks + scale);
    changed += run(codes, width, tables + scale * stride, asked, marks + (scale << 8), dst, type);
    codes += width;
    dst += <usize>width * bytes;
  }
  return changed;
}

/** Sixteen codes of eight bytes, in order. */
function nibbles(codes: usize, low: v128): v128 {
  const pairs = v128.load64_zero(codes);
  const even = v128.and(pairs, low);
  const odd = i8x16.shr_u(pairs, 4);
  return i8x16.shuffle(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function lowBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

function highBytes(a: v128, b: v128): v128 {
  return i8x16.shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/** Writes sixteen elements. */
function putSixteen(dst: usize, table: usize, codes: v128, type: u32): void {
  const third = i8x16.swizzle(v128.load(table, TableAt.Planes), codes);
  const fourth = i8x16.swizzle(v128.load(table, TableAt.Planes + 16), codes);
  const low = lowBytes(third, fourth);
  const high = highBytes(third, fourth);
  if (type === Wide.Bf16) {
    v128.store(dst, low);
    v128.store(dst, high, 16);
    return;
  }
  const first = i8x16.swizzle(v128.load(table, TableAt.Planes + 32), codes);
  const second = i8x16.swizzle(v128.load(table, TableAt.Planes + 48), codes);
  const upper = lowBytes(first, second);
  const uppermost = highBytes(first, second);
  v128.store(dst, i16x8.shuffle(low, upper, 0, 8, 1, 9, 2, 10, 3, 11));
  v128.store(dst, i16x8.shuffle(low, upper, 4, 12, 5, 13, 6, 14, 7, 15), 16);
  v128.store(dst, i16x8.shuffle(high, uppermost, 0, 8, 1, 9, 2, 10, 3, 11), 32);
  v128.store(dst, i16x8.shuffle(high, uppermost, 4, 12, 5, 13, 6, 14, 7, 15), 48);
}

/**
 * As `widenGroups`, for codes of four bits, the low half of a byte first, and a width that is a multiple of 16. Marks are at
 * marks + 16 * s. Writes nothing if `dst` is 0.
 */
export function widenNibbles(
  codes: usize,
  groups: u32,
  width: u32,
  scales: usize,
  tables: usize,
  stride: u32,
  asks: usize,
  marks: usize,
  dst: usize,
  type: u32,
): u32 {
  const low = i8x16.splat(15);
  const bytes: usize = type === Wide.F32 ? 64 : 32;
  const step = width >> 4;
  let changed: u32 = 0;
  for (const end = scales + groups; scales < end; ++scales) {
    const scale = <usize>load<u8>(scales);
    const table = tables + scale * stride;
    const asked = load<u8>(asks + scale);
    for (let i: u32 = 0; i < step; ++i) {
      if (dst) {
        putSixteen(dst, table, nibbles(codes, low), type);
        dst += bytes;
      }
      if (asked) {
        const all = nibbles(codes, low);
        changed += popcnt(<u32>i8x16.bitmask(i8x16.swizzle(v128.load(table, TableAt.Changed), all)));
        if (asked === Asks.Mark) markSixteen(codes, marks + (scale << 4));
      }
      codes += 8;
    }
  }
  return changed;
}

function markSixteen(codes: usize, marks: usize): void {
  for (let i: usize = 0; i < 8; ++i) {
    const pair = <usize>load<u8>(codes + i);
    store<u8>(marks + (pair & 15), 1);
    store<u8>(marks + (pair >> 4), 1);
  }
}
