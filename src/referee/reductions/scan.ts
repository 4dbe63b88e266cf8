/**
 * The model of `cumsum` (aten/src/ATen/native/cuda/ScanUtils.cuh, and CUB for a tensor of one row). Each sum is rounded to f32
 * and then to the dtype.
 */
import { roundedTo as roundedToDType } from "../../explain/steps.js";
import { elementCount } from "../../tensor/shape.js";
import { WARP } from "../block-sums.js";
import type { Model } from "../call.js";
import { requireWideDType, roundedValue, toFloat32 } from "../conversions.js";
import { NotModelled } from "../not-modelled.js";
import { rowStart, rowsAlong } from "../value.js";

type Add = (a: number, b: number) => number;

/** The number of threads of a block of CUB's scan. */
const SCAN_THREADS = 128;
/** The maximum number of threads of a block along a row. */
const MAX_ROW_THREADS = 512;

/**
 * One tile of CUB's `DeviceScan`: `AgentScan` of 128 threads with 15 elements of 4 bytes or 30 elements of 2 bytes each. Every
 * thread sums its elements in order. Each warp scans the threads' sums by Kogge-Stone steps of 1, 2, 4, 8 and 16 threads. A
 * thread then adds the sum of the preceding warps and the sum of the preceding threads of its warp, and adds its elements to it
 * one by one.
 */
function scanTile(values: Float32Array, items: number, add: Add): Float32Array {
  if (values.length > SCAN_THREADS * items)
    throw new NotModelled(
      `a scan of ${values.length} elements: the order of several tiles depends on timing`,
    );
  const result = new Float32Array(values.length);
  const threadSum = (thread: number): number =>
    values.subarray(thread * items, (thread + 1) * items).reduce(add);
  let precedingSum: number | undefined;
  for (let firstThread = 0; firstThread * items < values.length; firstThread += WARP) {
    const threads = Math.min(WARP, Math.ceil(values.length / items) - firstThread);
    const sums = Float32Array.from({ length: threads }, (_, lane) => threadSum(firstThread + lane));
    for (let step = 1; step < WARP; step *= 2)
      for (let lane = threads - 1; lane >= step; lane--)
        sums[lane] = add(sums[lane - step] as number, sums[lane] as number);
    for (let lane = 0; lane < threads; lane++) {
      const warpPrefix = lane === 0 ? undefined : (sums[lane - 1] as number);
      let sum =
        precedingSum !== undefined && warpPrefix !== undefined
          ? add(precedingSum, warpPrefix)
          : (precedingSum ?? warpPrefix);
      const begin = (firstThread + lane) * items;
      for (let i = begin; i < Math.min(begin + items, values.length); i++) {
        sum = sum === undefined ? (values[i] as number) : add(sum, values[i] as number);
        result[i] = sum;
      }
    }
    const warpSum = sums[WARP - 1];
    if (warpSum !== undefined)
      precedingSum = precedingSum === undefined ? warpSum : add(precedingSum, warpSum);
  }
  return result;
}

/** The number of elements of a row that a block scans at a time: twice the number of its threads along the row. */
function rowBlock(rows: number, size: number): number {
  const log2 = (n: number) => Math.ceil(Math.log2(n));
  // PyTorch computes the difference in an unsigned integer, so that a negative difference becomes large.
  const difference = (log2(size) - log2(rows)) >>> 0;
  const log2Threads = Math.floor(((difference + 9) >>> 0) / 2);
  return 2 * 2 ** Math.min(Math.max(log2Threads, 4), Math.log2(MAX_ROW_THREADS));
}

/**
 * Scans a row, `block` elements at a time. The total of all preceding elements is added to the first of them. Then Sklansky's
 * steps s = 1, 2, 4, … divide them into groups of 2 s, and add element s - 1 of each group to the s elements after it.
 */
function scanRow(values: Float32Array, block: number, add: Add): Float32Array {
  const result = new Float32Array(values.length);
  const sums = new Float32Array(block);
  let total = 0;
  for (let begin = 0; begin < values.length; begin += block) {
    sums.fill(0).set(values.subarray(begin, begin + block));
    sums[0] = add(sums[0] as number, total);
    for (let step = 1; step < block; step *= 2)
      for (let i = 0; i < block; i++)
        if (i & step) sums[i] = add(sums[i] as number, sums[(i & -step) - 1] as number);
    result.set(sums.subarray(0, values.length - begin), begin);
    total = sums[block - 1] as number;
  }
  return result;
}

/** Scans one element after the other. */
function scanSequentially(values: Float32Array, add: Add): Float32Array {
  let sum = 0;
  return values.map((value) => {
    sum = add(sum, value);
    return sum;
  });
}

/**
 * aten::cumsum. One row is scanned by `scanTile`, rows along the last dimension by `scanRow`, rows along another dimension by
 * `scanSequentially`.
 */
export const cumulativeSum: Model = (call) => {
  const x = call.tensor("self");
  const dtype = requireWideDType(x);
  call.requireDefault("dtype", null);
  if (elementCount(x.shape) === 0 || x.shape.length === 0) throw new NotModelled(`a scan of [${x.shape}]`);
  const dim = call.dimension("dim", x.shape);
  const add: Add = (a, b) => roundedToDType(Math.fround(a + b), dtype);
  const values = toFloat32(call.backend, x);
  const dimRows = rowsAlong(x.shape, dim);
  const { outer, size, inner } = dimRows;
  const rows = outer * inner;
  const result = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const start = rowStart(dimRows, row);
    const line = Float32Array.from({ length: size }, (_, i) => values[start + i * inner] as number);
    const scannedRow =
      rows === 1
        ? scanTile(line, dtype === "f32" ? 15 : 30, add)
        : dim === x.shape.length - 1
          ? scanRow(line, rowBlock(rows, size), add)
          : scanSequentially(line, add);
    for (let i = 0; i < size; i++) result[start + i * inner] = scannedRow[i] as number;
  }
  return [roundedValue(call.backend, x.dtype, x.shape, result)];
};
