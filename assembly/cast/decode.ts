// Decoding. Codes of up to 8 bits are decoded by a table with one entry per byte value. An entry holds one f32 value,
// or two for packed 4-bit codes. `word` is a format word (contract.ts). a ⊗ b is the f32 product of a and b, rounded
// once.

import { Wide } from "../contract";
import { decode as decodeCode, mantissaBits } from "../core/minifloat";
import { canonical, canonicalFour, narrow, widen } from "../core/wide";
import { storageOf } from "./encoder";

/** The number of elements decoded at a time. */
const RUN: i32 = 2048;

/** The size in bytes of a decoding table. */
export const TABLE_BYTES: usize = 2048;

/**
 * Fills the table of a format of up to 8 bits with the values of its codes, multiplied by `scale`. Does nothing for
 * wider formats.
 */
export function fillTable(table: usize, word: u32, scale: f32): void {
  const storage = storageOf(word);
  if (storage === 3) {
    for (let code: u32 = 0; code < 256; ++code) {
      store<f32>(table + (code << 2), scaledValue(code, word, scale));
    }
  } else if (storage === 2) {
    for (let pair: u32 = 0; pair < 256; ++pair) {
      store<f32>(table + (pair << 3), scaledValue(pair & 15, word, scale));
      store<f32>(table + (pair << 3), scaledValue(pair >> 4, word, scale), 4);
    }
  }
}

/** The value of a code ⊗ scale. A NaN code is not multiplied, because the engine chooses the bits of a NaN product. */
function scaledValue(code: u32, word: u32, scale: f32): f32 {
  const value = reinterpret<f32>(decodeCode(code, word));
  return isNaN(value) ? value : value * scale;
}

/** Codes of the format `word`. */
@unmanaged
export class Codes {
  src: usize;
  word: u32;
}

/** Decodes codes [first, first + count) to f32. `table` is read for formats of up to 8 bits. */
export function decodeRun(codes: Codes, table: usize, first: usize, count: i32, dst: usize): void {
  const word = codes.word;
  const storage = storageOf(word);
  const from = codes.src + ((first << storage) >> 3);
  if (storage === 2) decodeNibbles(from, table, count, dst);
  else if (storage === 3) {
    for (let i: usize = 0; i < <usize>count; ++i) {
      store<u32>(dst + (i << 2), load<u32>(table + ((<usize>load<u8>(from + i)) << 2)));
    }
  } else if (isBinary16(word)) {
    widen(from, Wide.F16, 0, count, dst);
    canonicalize(dst, count);
  } else if (isAligned(word)) decodeAligned(from, storage, 23 - mantissaBits(word), count, dst);
  else {
    for (let i: usize = 0; i < <usize>count; ++i) {
      const code: u32 = storage === 4 ? load<u16>(from + (i << 1)) : load<u32>(from + (i << 2));
      store<u32>(dst + (i << 2), decodeCode(code, word));
    }
  }
}

/** Decodes packed 4-bit codes, starting at an even index. */
function decodeNibbles(from: usize, table: usize, count: i32, dst: usize): void {
  const pairs = <usize>count >> 1;
  for (let i: usize = 0; i < pairs; ++i) {
    store<u64>(dst + (i << 3), load<u64>(table + ((<usize>load<u8>(from + i)) << 3)));
  }
  if (count & 1) store<u32>(dst + (pairs << 3), load<u32>(table + ((<usize>load<u8>(from + pairs)) << 3)));
}

/** The format word of f16. */
const BINARY16: u32 = 0x000f0ba5;
/** The format word, without its mantissa bits, of the formats that are f32 with a shorter mantissa (bf16, tf32). */
const ALIGNED: u32 = 0x007f0b08;

function isBinary16(word: u32): bool {
  return word === BINARY16;
}

function isAligned(word: u32): bool {
  return (word & ~0xf0) === ALIGNED;
}

function decodeAligned(from: usize, storage: u32, shift: i32, count: i32, dst: usize): void {
  const vectorCount = <usize>(count & -4);
  let i: usize = 0;
  for (; i < vectorCount; i += 4) {
    const code = storage === 4 ? v128.load16x4_u(from + (i << 1)) : v128.load(from + (i << 2));
    v128.store(dst + (i << 2), canonicalFour(i32x4.shl(code, shift)));
  }
  for (; i < <usize>count; ++i) {
    const code: u32 = storage === 4 ? load<u16>(from + (i << 1)) : load<u32>(from + (i << 2));
    store<f32>(dst + (i << 2), canonical(reinterpret<f32>(code << shift)));
  }
}

/** Replaces every NaN of an f32 array by 0x7fffffff. */
function canonicalize(values: usize, count: i32): void {
  let i: usize = 0;
  for (const vectorCount = <usize>(count & -4); i < vectorCount; i += 4) {
    v128.store(values + (i << 2), canonicalFour(v128.load(values + (i << 2))));
  }
  for (; i < <usize>count; ++i) store<f32>(values + (i << 2), canonical(load<f32>(values + (i << 2))));
}

/** The arguments of `decode`. */
@unmanaged
class DecodeTask extends Codes {
  dst: usize;
  dstType: u32;
  scale: f32;
}

/**
 * dst[i] = f32(code i) ⊗ scale, rounded to `dstType` (a Wide), for i in [begin, end). Codes are stored as `encode`
 * stores them. For 4-bit codes `begin` must be even.
 */
export function decode(task: DecodeTask, scratch: usize, begin: u32, end: u32): void {
  const word = task.word;
  const scale = task.scale;
  const values = scratch + TABLE_BYTES;
  const hasTable = storageOf(word) <= 3;
  fillTable(scratch, word, scale);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    decodeRun(task, scratch, i, count, values);
    if (!hasTable && scale !== 1.0) scaleRun(values, count, scale);
    narrow(values, task.dst, task.dstType, i, count);
  }
}

/** values[i] = values[i] ⊗ scale. */
export function scaleRun(values: usize, count: i32, scale: f32): void {
  const s = f32x4.splat(scale);
  let i: usize = 0;
  for (const vectorCount = <usize>(count & -4); i < vectorCount; i += 4) {
    v128.store(values + (i << 2), f32x4.mul(v128.load(values + (i << 2)), s));
  }
  for (; i < <usize>count; ++i) store<f32>(values + (i << 2), load<f32>(values + (i << 2)) * scale);
}
