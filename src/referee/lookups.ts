/** Models of lookups by index and of their gradients, which add all rows with the same index. */
import { ShapeError } from "../errors.js";
import { asBytes } from "../tensor/data.js";
import { elementCount } from "../tensor/shape.js";
import { type Call, isValue, type Model } from "./call.js";
import { roundedValue, roundThrough, toFloat32 } from "./conversions.js";
import { NotModelled } from "./not-modelled.js";
import { firstMaxima } from "./reductions/operators.js";
import { selectSlices, toIntegers } from "./selections.js";
import {
  copyElement,
  forEachElement,
  itemSize,
  rowsAlong,
  stridesOf,
  type Value,
  zeroValue,
} from "./value.js";

/** The target index of rows that are not added. */
const PADDING = -1;

/** Rows of `width` f32 numbers. Row i is added to row `targets[i]` of the result. */
interface Rows {
  readonly values: Float32Array;
  readonly width: number;
  readonly targets: readonly number[];
}

/** The maximum number of indices that PyTorch does not sort. */
const MAX_UNSORTED = 3072;

/** The number of rows that a thread adds if the indices are sorted. */
const SORTED_ROWS = 10;
/** The number of rows that a block adds at a time if the indices are not sorted. */
const UNSORTED_ROWS = 32;

/** Adds row `sourceRow` of `values` to row `targetRow` of `sums`. */
function addRow(
  sums: Float32Array,
  targetRow: number,
  values: Float32Array,
  sourceRow: number,
  width: number,
): void {
  for (let i = 0; i < width; i++)
    sums[targetRow * width + i] =
      (sums[targetRow * width + i] as number) + (values[sourceRow * width + i] as number);
}

/** The indices of the rows of each target, in ascending order. */
function rowsByTarget(targets: readonly number[], start = 0, end = targets.length): Map<number, number[]> {
  const byTarget = new Map<number, number[]>();
  for (let row = start; row < end; row++) {
    const target = targets[row] as number;
    if (target === PADDING) continue;
    const rows = byTarget.get(target);
    if (rows) rows.push(row);
    else byTarget.set(target, [row]);
  }
  return byTarget;
}

/** The maximum number of rows of one target. The sum of two runs does not depend on their order; the sum of three runs may. */
const MAX_SORTED_ROWS = 2 * SORTED_ROWS;

/** Divides the rows of each target into runs of 10. Adds the rows of each run in order from +0, then the sums of the runs. */
function sortedSums({ values, width, targets }: Rows, out: Float32Array): void {
  const runSum = new Float32Array(width);
  for (const [target, rows] of rowsByTarget(targets))
    for (let start = 0; start < rows.length; start += SORTED_ROWS) {
      if (rows.length > MAX_SORTED_ROWS) throw new NotModelled(`${rows.length} rows of one index among many`);
      runSum.fill(0);
      for (const row of rows.slice(start, start + SORTED_ROWS)) addRow(runSum, 0, values, row, width);
      addRow(out, target, runSum, 0, width);
    }
}

/**
 * Adds 32 rows at a time. The rows of one target are added in order in f32. Their sum is rounded to the dtype and added to the
 * result, which is rounded to the dtype again.
 */
function unsortedSums(
  { values, width, targets }: Rows,
  out: Float32Array,
  roundToDType: (values: Float32Array) => Float32Array,
): void {
  for (let start = 0; start < targets.length; start += UNSORTED_ROWS) {
    const end = Math.min(start + UNSORTED_ROWS, targets.length);
    const groups = [...rowsByTarget(targets, start, end)];
    const sums = new Float32Array(groups.length * width);
    for (const [i, [, rows]] of groups.entries()) for (const row of rows) addRow(sums, i, values, row, width);
    const roundedSums = roundToDType(sums);
    for (const [i, [target]] of groups.entries()) addRow(roundedSums, i, out, target, width);
    const results = roundToDType(roundedSums);
    for (const [i, [target]] of groups.entries())
      out.set(results.subarray(i * width, (i + 1) * width), target * width);
  }
}

/** The rows of a gradient with their indices, which must be below `count`. Rows with the index `padding` are not added. */
function gradientRows(call: Call, grad: Value, indices: Value, count: number, padding: number): Rows {
  const width = grad.shape.at(-1) ?? 1;
  const indexList = toIntegers(indices);
  if (
    indexList.length * width !== elementCount(grad.shape) ||
    indexList.some((index) => !(index >= 0 && index < count))
  )
    throw new ShapeError(`indices [${indices.shape}] of ${count} rows with a gradient [${grad.shape}]`);
  const values = toFloat32(call.backend, grad);
  return { values, width, targets: indexList.map((index) => (index === padding ? PADDING : index)) };
}

/**
 * The gradient of an embedding: `unsortedSums` for up to 3072 indices (Embedding.cu); for more, `sortedSums` in f32, rounded once
 * to the dtype (EmbeddingBackwardKernel.cu).
 */
export const embeddingBackward: Model = (call) => {
  const [grad, indices] = [call.tensor("grad_output"), call.tensor("indices")];
  if (call.boolean("scale_grad_by_freq", false)) throw new NotModelled("scale_grad_by_freq is true");
  const count = call.integer("num_weights");
  const rows = gradientRows(call, grad, indices, count, call.integer("padding_idx", -1));
  const out = new Float32Array(count * rows.width);
  if (rows.targets.length > MAX_UNSORTED) sortedSums(rows, out);
  else unsortedSums(rows, out, (values) => roundThrough(call.backend, grad.dtype, values));
  return [roundedValue(call.backend, grad.dtype, [count, rows.width], out)];
};

/** aten::gather: each element of the result has an index along one dimension of `self`. */
export const gather: Model = (call) => {
  const [x, index] = [call.tensor("self"), call.tensor("index")];
  const dim = call.dimension("dim", x.shape);
  if (x.shape.length !== index.shape.length || x.shape.length === 0)
    throw new ShapeError(`indices [${index.shape}] of [${x.shape}]`);
  const out = zeroValue(x.dtype, index.shape);
  const [size, strides, list] = [itemSize(x.dtype), stridesOf(x.shape), toIntegers(index)];
  const stride = strides[dim] as number;
  const extent = x.shape[dim] as number;
  const isWithin = index.shape.every((each, i) => i === dim || each <= (x.shape[i] as number));
  if (!isWithin || list.some((each) => !(each >= 0 && each < extent)))
    throw new ShapeError(`indices [${index.shape}] of dimension ${dim} of [${x.shape}]`);
  forEachElement({ shape: index.shape, strides: strides.with(dim, 0), offset: 0 }, (i, start) =>
    copyElement(x.bytes, start + (list[i] as number) * stride, out.bytes, i, size),
  );
  return [out];
};

/** aten::index.Tensor with one tensor of indices, which selects slices of the first dimension. */
export const indexByTensor: Model = (call) => {
  const indices = call.get("indices");
  const [index, ...otherIndices] = Array.isArray(indices) ? indices : [];
  if (!isValue(index) || otherIndices.length > 0) throw new NotModelled("other indices than one tensor");
  return [selectSlices(call.tensor("self"), index, 0)];
};

/** The index of the first maximum along a dimension, or of the first NaN. */
export const argmax: Model = (call) => {
  const x = call.tensor("self");
  if (call.get("dim") === undefined || x.shape.length === 0) throw new NotModelled("argmax of all elements");
  const dim = call.dimension("dim", x.shape);
  if (x.shape[dim] === 0) throw new ShapeError(`argmax of dimension ${dim} of [${x.shape}]`);
  const keeps = call.boolean("keepdim", false);
  const shape = keeps ? x.shape.with(dim, 1) : x.shape.toSpliced(dim, 1);
  const { indices } = firstMaxima(toFloat32(call.backend, x), rowsAlong(x.shape, dim));
  return [{ dtype: "I64", shape, bytes: asBytes(indices) }];
};

/** The maximum number of elements of a row. PyTorch has another kernel for longer rows, which no recorded call used. */
const MAX_ACCUMULATED_WIDTH = 32;

/**
 * aten::index_put with accumulation and one tensor of indices: the rows with the same index are added in order in f32, then the
 * row of `self` is added, and the sum is rounded once.
 */
export const indexPut: Model = (call) => {
  const [x, values] = [call.tensor("self"), call.tensor("values")];
  const indices = call.get("indices");
  const [index, ...otherIndices] = Array.isArray(indices) ? indices : [];
  if (!isValue(index) || otherIndices.length > 0 || !call.boolean("accumulate", false))
    throw new NotModelled("other indices than one tensor, or no accumulation");
  const rows = gradientRows(call, values, index, x.shape[0] ?? 0, -1);
  if (
    x.dtype !== values.dtype ||
    x.shape.length !== 2 ||
    x.shape[1] !== rows.width ||
    rows.width > MAX_ACCUMULATED_WIDTH
  )
    throw new NotModelled(`${x.dtype} [${x.shape}] with rows of ${values.dtype} [${values.shape}]`);
  const sums = new Float32Array(elementCount(x.shape));
  for (const [row, target] of rows.targets.entries()) addRow(sums, target, rows.values, row, rows.width);
  addRow(sums, 0, toFloat32(call.backend, x), 0, sums.length);
  return [roundedValue(call.backend, x.dtype, x.shape, sums)];
};
