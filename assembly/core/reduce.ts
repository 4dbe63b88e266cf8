// The order of additions of every sum. A row sum has 32 lanes, which start at +0. Lane l adds elements l, l + 32, l + 64, … in
// ascending order. Then, for w = 16, 8, 4, 2, 1, lane l < w adds lane l + w. A column sum first adds each 32 consecutive rows, in
// ascending order and starting at +0, and then these partial sums, also in ascending order and starting at +0.
import { addEach, fill } from "./chunk";
import { BUFFER, CHUNK } from "./scratch";
import { narrow, widen } from "./wide";

/** The size in bytes of the 32 lanes of a sum. */
const LANES: usize = 128;

/** The number of rows per partial sum of a column sum. */
export const ROWS: usize = 32;

/** Adds `count` f32 terms to `lanes`. In all calls for a sum except the last, `count` must be a multiple of 32. */
export function addTerms(lanes: usize, terms: usize, count: usize): void {
  let sum0 = v128.load(lanes);
  let sum1 = v128.load(lanes, 16);
  let sum2 = v128.load(lanes, 32);
  let sum3 = v128.load(lanes, 48);
  let sum4 = v128.load(lanes, 64);
  let sum5 = v128.load(lanes, 80);
  let sum6 = v128.load(lanes, 96);
  let sum7 = v128.load(lanes, 112);
  for (const end = terms + ((count & ~31) << 2); terms < end; terms += LANES) {
    sum0 = f32x4.add(sum0, v128.load(terms));
    sum1 = f32x4.add(sum1, v128.load(terms, 16));
    sum2 = f32x4.add(sum2, v128.load(terms, 32));
    sum3 = f32x4.add(sum3, v128.load(terms, 48));
    sum4 = f32x4.add(sum4, v128.load(terms, 64));
    sum5 = f32x4.add(sum5, v128.load(terms, 80));
    sum6 = f32x4.add(sum6, v128.load(terms, 96));
    sum7 = f32x4.add(sum7, v128.load(terms, 112));
  }
  v128.store(lanes, sum0);
  v128.store(lanes, sum1, 16);
  v128.store(lanes, sum2, 32);
  v128.store(lanes, sum3, 48);
  v128.store(lanes, sum4, 64);
  v128.store(lanes, sum5, 80);
  v128.store(lanes, sum6, 96);
  v128.store(lanes, sum7, 112);
  for (const end = lanes + ((count & 31) << 2); lanes < end; lanes += 4, terms += 4) {
    store<f32>(lanes, load<f32>(lanes) + load<f32>(terms));
  }
}

/** The sum of the 32 lanes, in the order above. */
export function foldLanes(lanes: usize): f32 {
  const sum0 = f32x4.add(v128.load(lanes), v128.load(lanes, 64));
  const sum1 = f32x4.add(v128.load(lanes, 16), v128.load(lanes, 80));
  const sum2 = f32x4.add(v128.load(lanes, 32), v128.load(lanes, 96));
  const sum3 = f32x4.add(v128.load(lanes, 48), v128.load(lanes, 112));
  const four = f32x4.add(f32x4.add(sum0, sum2), f32x4.add(sum1, sum3));
  const two = f32x4.add(four, v128.shuffle<i64>(four, four, 1, 1));
  return f32x4.extract_lane(two, 0) + f32x4.extract_lane(two, 1);
}

/** The maximum of `start` and `count` f32 values, NaN ignored. Which of +0 and -0 is returned is unspecified. */
export function maximumOf(values: usize, count: usize, start: f32): f32 {
  let lanes = f32x4.splat(start);
  for (const end = values + ((count & ~3) << 2); values < end; values += 16) {
    lanes = f32x4.pmax(lanes, v128.load(values));
  }
  for (const end = values + ((count & 3) << 2); values < end; values += 4) {
    lanes = f32x4.pmax(lanes, v128.load32_splat(values));
  }
  lanes = f32x4.pmax(lanes, v128.shuffle<i64>(lanes, lanes, 1, 1));
  return f32x4.extract_lane(f32x4.pmax(lanes, v128.shuffle<i32>(lanes, lanes, 1, 1, 1, 1)), 0);
}

/** The arguments of `rowSum`. */
@unmanaged
class RowSumTask {
  src: usize;
  srcType: u32;
  dst: usize;
  columns: usize;
}

/** dst[row] = the sum of src[row, 0..columns), f32, for rows [begin, end). */
export function rowSum(task: RowSumTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const lanes = scratch + BUFFER;
  for (let row = begin; row < end; row++) {
    fill(lanes, 0, 32);
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      widen(task.src, task.srcType, row * columns + i, count, scratch);
      addTerms(lanes, scratch, count);
    }
    store<f32>(task.dst + (row << 2), foldLanes(lanes));
  }
}

/** The arguments of `columnSum`. */
@unmanaged
class ColumnSumTask {
  src: usize;
  srcType: u32;
  dst: usize;
  dstType: u32;
  rows: usize;
  columns: usize;
}

/** dst[column] = the sum of src[0..rows, column], rounded to `dstType`, for columns [begin, end). */
export function columnSum(task: ColumnSumTask, scratch: usize, begin: usize, end: usize): void {
  const rows = task.rows;
  const columns = task.columns;
  const terms = scratch;
  const partial = terms + BUFFER;
  const total = partial + BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    fill(total, 0, count);
    for (let first: usize = 0; first < rows; first += ROWS) {
      fill(partial, 0, count);
      for (let row = first, last = min(rows, first + ROWS); row < last; row++) {
        widen(task.src, task.srcType, row * columns + i, count, terms);
        addEach(partial, terms, count);
      }
      addEach(total, partial, count);
    }
    narrow(total, task.dst, task.dstType, i, count);
  }
}
