// Dequantization: f32(code) ⊗ factor, then one rounding to the result's type; a ⊗ b is the f32 product of a and b, rounded once.
// The factor is the block's scale if that is f32. For a byte scale it is ((f32(scale code) ⊗ g) ⊗ inverse) ⊘ divisor, read from a
// table. g, inverse and divisor represent NVFP4's per-tensor scale; they are 1 for e8m0. If each row has its own g, the table has
// only the scales.

import { Codes, decodeRun, fillTable, scaleRun, TABLE_BYTES } from "../cast/decode";
import { decode as decodeCode } from "../core/minifloat";
import { narrow } from "../core/wide";

/** The number of elements processed at a time, a multiple of every block length. */
const RUN: u32 = 2048;

/** Byte offsets in the scratch memory, in this order. */
const SCALES: usize = TABLE_BYTES;
const VALUES: usize = SCALES + 1024;
const FACTORS: usize = VALUES + RUN * 4;

/**
 * The arguments of `dequantizeColumns`: codes of up to 8 bits, and their scales, [ceil(rows / tileRows), columns], which are f32
 * if `scaleWord` is 0, else bytes of that format. The result `dst` [rows, columns] has the Wide type `dstType`.
 */
@unmanaged
class DequantizeColumnsTask extends Codes {
  scales: usize;
  scaleWord: u32;
  g: f32;
  inverse: f32;
  divisor: f32;
  columns: u32;
  tileRows: u32;
  dst: usize;
  dstType: u32;
}

/**
 * The arguments of `dequantizeRows`. Scales are [ceil(rows / tileRows), ceil(columns / 2^blockShift)]. If `amaxes` is not null,
 * row r has the f32 amaxes[r] for g, and `divisor` is 1.
 */
@unmanaged
class DequantizeRowsTask extends DequantizeColumnsTask {
  blockShift: i32;
  amaxes: usize;
}

function prepareTables(task: DequantizeColumnsTask, scratch: usize): void {
  fillTable(scratch, task.word, 1);
  for (let code: u32 = 0; code < 256 && task.scaleWord !== 0; ++code) {
    const scale = reinterpret<f32>(decodeCode(code, task.scaleWord));
    store<f32>(scratch + SCALES + (code << 2), (scale * task.g * task.inverse) / task.divisor);
  }
}

/** As `prepareTables`, for a task whose rows have their own g: the table has only the scales. */
function prepareRowTables(task: DequantizeRowsTask, scratch: usize): void {
  fillTable(scratch, task.word, 1);
  for (let code: u32 = 0; code < 256 && task.scaleWord !== 0; ++code) {
    store<u32>(scratch + SCALES + (code << 2), decodeCode(code, task.scaleWord));
  }
}

/** The factor of the scale at `index`. */
function scaleAt(task: DequantizeColumnsTask, scratch: usize, index: usize): f32 {
  if (task.scaleWord === 0) return load<f32>(task.scales + (index << 2));
  return load<f32>(scratch + SCALES + ((<usize>load<u8>(task.scales + index)) << 2));
}

/**
 * Dequantizes elements [first, first + length). Element `first` must be the first of the block whose scale has the index
 * firstScale. If rows have their own g, the elements are one row.
 */
function dequantizePiece(
  task: DequantizeRowsTask,
  scratch: usize,
  first: usize,
  length: u32,
  firstScale: usize,
): void {
  const blockShift = task.blockShift;
  const block: u32 = 1 << blockShift;
  const amaxes = task.amaxes;
  const g: f32 = amaxes ? load<f32>(amaxes + ((first / task.columns) << 2)) : 1;
  const inverse: f32 = amaxes ? task.inverse : 1;
  const values = scratch + VALUES;
  for (let c: u32 = 0; c < length; c += RUN) {
    const count = min(RUN, length - c);
    decodeRun(task, scratch, first + c, count, values);
    for (let i: u32 = 0; i < count; i += block) {
      const scale = scaleAt(task, scratch, firstScale + ((c + i) >> blockShift));
      scaleRun(values + ((<usize>i) << 2), min(block, count - i), scale * g * inverse);
    }
    narrow(values, task.dst, task.dstType, first + c, count);
  }
}

/** Computes rows [begin, end). */
export function dequantizeRows(task: DequantizeRowsTask, scratch: usize, begin: u32, end: u32): void {
  const amaxes = task.amaxes;
  const columns = task.columns;
  const tileRows = task.tileRows;
  const blockShift = task.blockShift;
  if (amaxes) prepareRowTables(task, scratch);
  else prepareTables(task, scratch);
  const block: u32 = 1 << blockShift;
  if (tileRows === 1 && !amaxes && (columns & (block - 1)) === 0) {
    // every row has whole blocks, so the rows are treated as one long row
    const first = <usize>begin * columns;
    dequantizePiece(task, scratch, first, (end - begin) * columns, first >> blockShift);
    return;
  }
  const blocks = (columns + block - 1) >> blockShift;
  for (let r = begin; r < end; ++r) {
    dequantizePiece(task, scratch, <usize>r * columns, columns, <usize>(r / tileRows) * blocks);
  }
}

/** As `dequantizeRows`, for blocks along the columns. */
export function dequantizeColumns(task: DequantizeColumnsTask, scratch: usize, begin: u32, end: u32): void {
  const columns = task.columns;
  const tileRows = task.tileRows;
  prepareTables(task, scratch);
  const values = scratch + VALUES;
  const factors = scratch + FACTORS;
  for (let c: u32 = 0; c < columns; c += RUN) {
    const count = min(RUN, columns - c);
    for (let r = begin; r < end; ++r) {
      if (r === begin || r % tileRows === 0) {
        const firstScale = <usize>(r / tileRows) * columns + c;
        for (let i: usize = 0; i < <usize>count; ++i) {
          store<f32>(factors + (i << 2), scaleAt(task, scratch, firstScale + i));
        }
      }
      const first = <usize>r * columns + c;
      decodeRun(task, scratch, first, count, values);
      multiplyRun(values, factors, count);
      narrow(values, task.dst, task.dstType, first, count);
    }
  }
}

/** values[i] = values[i] ⊗ factors[i]. Both arrays have room for a multiple of four. */
function multiplyRun(values: usize, factors: usize, count: u32): void {
  for (let i: usize = 0; i < (<usize>count) << 2; i += 16) {
    v128.store(values + i, f32x4.mul(v128.load(values + i), v128.load(factors + i)));
  }
}
