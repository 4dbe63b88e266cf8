// Dequantization: f32(code) ⊗ factor, then one rounding to the result's type; a ⊗ b is the f32 product of a and b, rounded once.
// The factor is the block's scale if that is f32. For a byte scale it is ((f32(scale code) ⊗ g) ⊗ inverse) ⊘ divisor, read from a
// table. g, inverse and divisor represent NVFP4's per-tensor scale; they are 1 for e8m0. If each row has its own g, the table has
// only the scales.

import { decodeRun, fillTable, scaleRun, TABLE_BYTES } from "../cast/decode";
import { decode as decodeCode } from "../core/minifloat";
import { narrow } from "../core/wide";

/** The number of elements processed at a time, a multiple of every block length. */
const RUN: u32 = 2048;

/** Byte offsets in the scratch memory, in this order. */
const SCALES: usize = TABLE_BYTES;
const VALUES: usize = SCALES + 1024;
const FACTORS: usize = VALUES + RUN * 4;

function prepareTables(scratch: usize, word: u32, scaleWord: u32, g: f32, inverse: f32, divisor: f32): void {
  fillTable(scratch, word, 1);
  for (let code: u32 = 0; code < 256 && scaleWord !== 0; ++code) {
    const scale = reinterpret<f32>(decodeCode(code, scaleWord));
    store<f32>(scratch + SCALES + (code << 2), (scale * g * inverse) / divisor);
  }
}

/** The factor of the scale at `index`. */
function scaleAt(scratch: usize, scales: usize, scaleWord: u32, index: usize): f32 {
  if (scaleWord === 0) return load<f32>(scales + (index << 2));
  return load<f32>(scratch + SCALES + ((<usize>load<u8>(scales + index)) << 2));
}

/**
 * Dequantizes elements [first, first + length). Element `first` must be the first of the block whose scale has the
 * index firstScale. Scales of the table are multiplied by `g`, then by `inverse`.
 */
function dequantizePiece(
  src: usize,
  word: u32,
  scales: usize,
  scaleWord: u32,
  first: usize,
  length: u32,
  firstScale: usize,
  blockShift: i32,
  dst: usize,
  dstType: u32,
  scratch: usize,
  g: f32,
  inverse: f32,
): void {
  const block: u32 = 1 << blockShift;
  const values = scratch + VALUES;
  for (let c: u32 = 0; c < length; c += RUN) {
    const count = min(RUN, length - c);
    decodeRun(src, word, scratch, first + c, count, values);
    for (let i: u32 = 0; i < count; i += block) {
      const scale = scaleAt(scratch, scales, scaleWord, firstScale + ((c + i) >> blockShift));
      scaleRun(values + ((<usize>i) << 2), min(block, count - i), scale * g * inverse);
    }
    narrow(values, dst, dstType, first + c, count);
  }
}

/**
 * Computes rows [begin, end) of dst [rows, columns], of Wide type `dstType`, from codes of format `word` (up to 8
 * bits). Scales are [ceil(rows / tileRows), ceil(columns / 2^blockShift)]; they are f32 if `scaleWord` is 0, else bytes
 * of that format. Formats are given by format words (contract.ts). If `amaxes` is not 0, row r has the f32 amaxes[r] for g, and
 * `divisor` is 1.
 */
export function dequantizeRows(
  src: usize,
  word: u32,
  scales: usize,
  scaleWord: u32,
  g: f32,
  amaxes: usize,
  inverse: f32,
  divisor: f32,
  columns: u32,
  tileRows: u32,
  blockShift: i32,
  dst: usize,
  dstType: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  if (amaxes) prepareTables(scratch, word, scaleWord, 1, 1, 1);
  else prepareTables(scratch, word, scaleWord, g, inverse, divisor);
  const block: u32 = 1 << blockShift;
  if (tileRows === 1 && !amaxes && (columns & (block - 1)) === 0) {
    // every row has whole blocks, so the rows are treated as one long row
    const first = <usize>begin * columns;
    const count = (end - begin) * columns;
    const skipped = first >> blockShift;
    dequantizePiece(
      src,
      word,
      scales,
      scaleWord,
      first,
      count,
      skipped,
      blockShift,
      dst,
      dstType,
      scratch,
      1,
      1,
    );
    return;
  }
  const blocks = (columns + block - 1) >> blockShift;
  for (let r = begin; r < end; ++r) {
    const first = <usize>r * columns;
    const skipped = <usize>(r / tileRows) * blocks;
    const rowAmax: f32 = amaxes ? load<f32>(amaxes + ((<usize>r) << 2)) : 1;
    const over: f32 = amaxes ? inverse : 1;
    dequantizePiece(
      src,
      word,
      scales,
      scaleWord,
      first,
      columns,
      skipped,
      blockShift,
      dst,
      dstType,
      scratch,
      rowAmax,
      over,
    );
  }
}

/** As `dequantizeRows`, for blocks along the columns, with scales [ceil(rows / tileRows), columns]. */
export function dequantizeColumns(
  src: usize,
  word: u32,
  scales: usize,
  scaleWord: u32,
  g: f32,
  inverse: f32,
  divisor: f32,
  columns: u32,
  tileRows: u32,
  dst: usize,
  dstType: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  prepareTables(scratch, word, scaleWord, g, inverse, divisor);
  const values = scratch + VALUES;
  const factors = scratch + FACTORS;
  for (let c: u32 = 0; c < columns; c += RUN) {
    const count = min(RUN, columns - c);
    for (let r = begin; r < end; ++r) {
      if (r === begin || r % tileRows === 0) {
        const firstScale = <usize>(r / tileRows) * columns + c;
        for (let i: usize = 0; i < <usize>count; ++i) {
          store<f32>(factors + (i << 2), scaleAt(scratch, scales, scaleWord, firstScale + i));
        }
      }
      const first = <usize>r * columns + c;
      decodeRun(src, word, scratch, first, count, values);
      multiplyRun(values, factors, count);
      narrow(values, dst, dstType, first, count);
    }
  }
}

/** values[i] = values[i] ⊗ factors[i]. Both arrays have room for a multiple of four. */
function multiplyRun(values: usize, factors: usize, count: u32): void {
  for (let i: usize = 0; i < (<usize>count) << 2; i += 16) {
    v128.store(values + i, f32x4.mul(v128.load(values + i), v128.load(factors + i)));
  }
}
