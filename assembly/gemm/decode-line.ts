// Decodes the rows of an operand of a matrix product to f32.

import { Wide } from "../contract";
import { decode } from "../core/minifloat";
import { widen } from "../core/wide";
import { Operand } from "./task";

export const BF16_WORD: u32 = 0x007f0b78;
const F16_WORD: u32 = 0x000f0ba5;

/** The Wide type of a format word, or -1 if it has none. */
export function wideTypeOf(word: u32): i32 {
  if (word === 0) return Wide.F32;
  if (word === BF16_WORD) return Wide.Bf16;
  return word === F16_WORD ? Wide.F16 : -1;
}

/** The code of element k of a row of 4- or 8-bit codes. */
export function narrowCode(data: usize, width: u32, k: u32): u32 {
  if (width === 8) return load<u8>(data + k);
  return (<u32>load<u8>(data + (k >> 1)) >> ((k & 1) << 2)) & 15;
}

export function rowAt(record: Operand, row: u32, depth: u32): usize {
  return record.data + <usize>row * ((<usize>depth * record.width + 7) >> 3);
}

/** The f32 value of the code in the low `width` bits of `codes`. */
function valueOfCode(table: usize, codes: u32, width: u32): u32 {
  return load<u32>(table + ((codes & ((1 << width) - 1)) << 2));
}

/** Decodes `depth` 4- or 8-bit codes to f32. */
function decodeNarrow(data: usize, width: u32, table: usize, depth: u32, line: usize): void {
  const whole = depth & ~3;
  for (let k: u32 = 0; k < whole; k += 4) {
    const codes: u32 = width === 8 ? load<u32>(data + k) : load<u16>(data + (k >> 1));
    store<u32>(line, valueOfCode(table, codes, width));
    store<u32>(line, valueOfCode(table, codes >> width, width), 4);
    store<u32>(line, valueOfCode(table, codes >> (2 * width), width), 8);
    store<u32>(line, valueOfCode(table, codes >> (3 * width), width), 12);
    line += 16;
  }
  for (let k = whole; k < depth; k++) {
    store<u32>(line, load<u32>(table + (narrowCode(data, width, k) << 2)));
    line += 4;
  }
}

/** Decodes row `row` of `depth` elements to f32. */
export function decodeLine(record: Operand, table: usize, row: u32, depth: u32, line: usize): void {
  const width = record.width;
  const word = record.word;
  const data = rowAt(record, row, depth);
  if (width <= 8) {
    decodeNarrow(data, width, table, depth, line);
  } else if (word === 0) {
    memory.copy(line, data, (<usize>depth) << 2);
  } else if (wideTypeOf(word) >= 0) {
    widen(data, wideTypeOf(word), 0, depth, line);
  } else {
    for (let k: u32 = 0; k < depth; k++) {
      const code: u32 = width === 16 ? load<u16>(data + (k << 1)) : load<u32>(data + (k << 2));
      store<u32>(line + (k << 2), decode(code, word));
    }
  }
}
