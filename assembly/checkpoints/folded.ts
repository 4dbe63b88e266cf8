// Converts blocks of 8-bit codes to bf16 by folded tables (octaves.ts), sixteen codes at a time.

import { At } from "./octaves";
import { TableAt, widenRun } from "./wide-table";

/**
 * `rows` rows of `width` one-byte codes, and their table. Rows are `pitch` elements apart, both in the codes and in the results
 * at `dst`.
 */
@unmanaged
export class CodeBlock {
  codes: usize;
  rows: u32;
  width: u32;
  pitch: u32;
  table: usize;
  dst: usize;
}

/** Whether the folded table covers all sixteen codes. */
function coversAll(folded: usize, codes: v128): bool {
  const twice = i8x16.add(codes, codes);
  if (v128.any_true(i8x16.gt_u(twice, v128.load8_splat(folded, At.LastTwice)))) return false;
  const leastTwice = v128.load8_splat(folded, At.LeastTwice);
  return load<u8>(folded, At.Small) !== 0 || !v128.any_true(i8x16.lt_u(twice, leastTwice));
}

/** Writes 16-bit words from a vector of their lower bytes and a vector of their upper bytes. */
function putWords(low: v128, high: v128, dst: usize): void {
  v128.store(dst, i8x16.shuffle(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  v128.store(dst, i8x16.shuffle(low, high, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), 16);
}

/** Writes the words of sixteen codes that the folded table covers. */
function putFolded(codes: v128, folded: usize, dst: usize): void {
  const half = v128.load8_splat(folded, At.Half);
  const lower = v128.and(codes, half);
  const small = i8x16.lt_u(i8x16.add(codes, codes), v128.load8_splat(folded, At.LeastTwice));
  const low = v128.bitselect(
    i8x16.swizzle(v128.load(folded, At.SmallLow), lower),
    i8x16.swizzle(v128.load(folded, At.Low), lower),
    small,
  );
  const high = v128.bitselect(
    i8x16.swizzle(v128.load(folded, At.SmallHigh), lower),
    i8x16.swizzle(v128.load(folded, At.High), lower),
    small,
  );
  const upper = i8x16.swizzle(v128.load(folded, At.Upper), v128.and(i16x8.shr_u(codes, 4), half));
  putWords(low, i8x16.add(high, upper), dst);
}

/**
 * Writes the first `width` codes, a multiple of 16, of each row of a block. `putOther` writes groups of sixteen in which a
 * magnitude is below 8 or the table does not cover a code.
 */
function putRows(block: CodeBlock, width: usize): void {
  let codes = block.codes;
  let rows = block.rows;
  let dst = block.dst;
  const pitch = <usize>block.pitch;
  const table = block.table;
  const folded = table + TableAt.Folded;
  const lows = v128.load(folded, At.Low);
  const highs = v128.load(folded, At.High);
  const uppers = v128.load(folded, At.Upper);
  const half = v128.load8_splat(folded, At.Half);
  const leastTwice = v128.load8_splat(folded, At.LeastTwice);
  const span = v128.load8_splat(folded, At.Span);
  for (; rows > 0; --rows) {
    let to = dst;
    let from = codes;
    for (const end = from + width; from < end; from += 16) {
      const sixteen = v128.load(from);
      if (v128.any_true(i8x16.ge_u(i8x16.sub(i8x16.add(sixteen, sixteen), leastTwice), span))) {
        putOther(from, table, to);
      } else {
        const lower = v128.and(sixteen, half);
        const upper = i8x16.swizzle(uppers, v128.and(i16x8.shr_u(sixteen, 4), half));
        putWords(i8x16.swizzle(lows, lower), i8x16.add(i8x16.swizzle(highs, lower), upper), to);
      }
      to += 32;
    }
    codes += pitch;
    dst += pitch << 1;
  }
}

/** Writes any sixteen codes. */
function putOther(from: usize, table: usize, to: usize): void {
  const codes = v128.load(from);
  if (coversAll(table + TableAt.Folded, codes)) putFolded(codes, table + TableAt.Folded, to);
  else widenRun<u16>(from, 16, table, to);
}

/** As `widenBlock`, for bf16 and a folded table. */
export function foldedBlock(block: CodeBlock): void {
  const vectorWidth = <usize>(block.width & -16);
  putRows(block, vectorWidth);
  const tailWidth = <usize>block.width - vectorWidth;
  if (!tailWidth) return;
  for (let row: u32 = 0; row < block.rows; ++row) {
    const from = <usize>row * block.pitch + vectorWidth;
    widenRun<u16>(block.codes + from, tailWidth, block.table, block.dst + (from << 1));
  }
}
