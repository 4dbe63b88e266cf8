/** Differentiable rearrangements of chunks of rows, whose sizes the host knows. */
import { ArgumentError, ShapeError } from "../errors.js";
import { tensor } from "../ops/create.js";
import { commonBackend } from "../ops/execute.js";
import { takeRows } from "../ops/rows/expert-rows.js";
import { integer, ownList } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { Shape } from "../tensor/shape.js";

/** Rows in chunks of other sizes. */
export interface PaddedRows {
  /** The rows. */
  readonly output: Variable;
  /** The number of rows of each chunk of `output`. */
  readonly mSplits: readonly number[];
}

/** Sorted chunks, and the probability of each row. */
export interface SortedChunksWithProbs {
  /** The rows of the sorted chunks. */
  readonly output: Variable;
  /** The probability of each row of `output`. */
  readonly permutedProbs: Variable;
}

const MAX_ROWS = 2 ** 31 - 1;
const rowCount = integer(0, MAX_ROWS);
const alignment = integer(1, MAX_ROWS);

/**
 * Returns the rows of `inp` [T, D] with its chunks in another order: chunk i of the result is chunk sortedIndices[i] of `inp`,
 * whose chunks have the numbers of rows `splitSizes`. Corresponds to `moe_sort_chunks_by_index` of TransformerEngine. The
 * gradient is the gradient of the result with its chunks in the order of `inp`.
 *
 * @throws `DTypeError` for an `inp` that is not f32, bf16 or f16, `ShapeError` unless its first size is the sum of `splitSizes`,
 * `ArgumentError` unless `sortedIndices` has each chunk once, for a size that is not an integer from 0, and for an argument that
 * is not a tensor, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function moeSortChunksByIndex(
  inp: VariableLike,
  splitSizes: readonly number[],
  sortedIndices: readonly number[],
): Variable {
  const caller = "moeSortChunksByIndex";
  const source = variableOf(caller, "inp", inp);
  return rearrangeRows(caller, "inp", source, sortedRows(caller, source.shape, splitSizes, sortedIndices));
}

/**
 * As `moeSortChunksByIndex`, and also returns the elements of `probs` [T] in the order of the rows. Corresponds to
 * `moe_sort_chunks_by_index_with_probs` of TransformerEngine.
 *
 * @throws `DTypeError` for an `inp` or probabilities that are not f32, bf16 or f16, `ShapeError` unless the first size of both is
 * the sum of `splitSizes`, `ArgumentError` unless `sortedIndices` has each chunk once, for a size that is not an integer from 0,
 * for an argument that is not a tensor, and for tensors on different backends, `DisposedError` for a disposed tensor,
 * `OutOfMemoryError` if memory is not available.
 */
export function moeSortChunksByIndexWithProbs(
  inp: VariableLike,
  probs: VariableLike,
  splitSizes: readonly number[],
  sortedIndices: readonly number[],
): SortedChunksWithProbs {
  const caller = "moeSortChunksByIndexWithProbs";
  const source = variableOf(caller, "inp", inp);
  const shares = variableOf(caller, "probs", probs);
  const rows = sortedRows(caller, source.shape, splitSizes, sortedIndices);
  if (shares.shape.length !== 1 || shares.shape[0] !== source.shape[0])
    throw new ShapeError(
      `${caller}: probs is [${shares.shape}]; it must be [${source.shape[0]}], one for each row`,
    );
  const values = [wideOf(`${caller}: inp`, source.value), wideOf(`${caller}: probs`, shares.value)];
  commonBackend(caller, ...values);
  return {
    output: rearrangeRows(caller, "inp", source, rows),
    permutedProbs: rearrangeRows(caller, "probs", shares, rows),
  };
}

/** Returns the row of `inp` that becomes each row of the sorted chunks. */
function sortedRows(
  caller: string,
  shape: Shape,
  splitSizes: readonly number[],
  sortedIndices: readonly number[],
): Int32Array {
  const sizes = splitsOf(caller, "splitSizes", splitSizes);
  requireRows(caller, "splitSizes", shape, sizes);
  const order = ownList(
    caller,
    "sortedIndices",
    sortedIndices,
    (each, i) => rowCount(caller, `sortedIndices[${i}]`, each) as number,
  );
  const inverse = order.map((_, chunk) => order.indexOf(chunk));
  if (order.length !== sizes.length || inverse.includes(-1))
    throw new ArgumentError(
      `${caller}: sortedIndices is [${order}]; it must have each of the ${sizes.length} chunks once`,
    );
  const firsts = chunkStarts(sizes);
  return rowIndices(
    order.map((chunk) => ({ start: firsts[chunk] as number, count: sizes[chunk] as number, paddedRows: 0 })),
  );
}

/**
 * Returns `inp` [T, D], whose chunks have the numbers of rows `mSplits`, with rows of +0 after each chunk, so that each has a
 * multiple of `alignSize` rows, which quantizers with blocks along columns need. The gradient of `inp` is the gradient of its
 * rows in the result. Corresponds to `Fp8Padding` of TransformerEngine.
 *
 * @throws `DTypeError` for an `inp` that is not f32, bf16 or f16, `ShapeError` unless its first size is the sum of `mSplits`,
 * `ArgumentError` for a size that is not an integer from 0, an `alignSize` that is not a positive integer, and an argument that
 * is not a tensor, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function padding(inp: VariableLike, mSplits: readonly number[], alignSize: number): PaddedRows {
  const source = variableOf("padding", "inp", inp);
  const { sizes, padded } = paddedSplits("padding", mSplits, alignSize);
  requireRows("padding", "mSplits", source.shape, sizes);
  const firsts = chunkStarts(sizes);
  const rows = rowIndices(
    sizes.map((count, i) => ({
      start: firsts[i] as number,
      count,
      paddedRows: (padded[i] as number) - count,
    })),
  );
  return { output: rearrangeRows("padding", "inp", source, rows), mSplits: padded };
}

/**
 * Returns the rows of `inp` without those that `padding` with the same `mSplits` and `alignSize` has added. The gradient has +0
 * in rows of padding. Corresponds to `Fp8Unpadding` of TransformerEngine.
 *
 * @throws `DTypeError` for an `inp` that is not f32, bf16 or f16, `ShapeError` unless its first size is the sum of the padded
 * `mSplits`, `ArgumentError` for a size that is not an integer from 0, an `alignSize` that is not a positive integer, and an
 * argument that is not a tensor, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function unpadding(inp: VariableLike, mSplits: readonly number[], alignSize: number): Variable {
  const source = variableOf("unpadding", "inp", inp);
  const { sizes, padded } = paddedSplits("unpadding", mSplits, alignSize);
  requireRows("unpadding", "the padded mSplits", source.shape, padded);
  const firsts = chunkStarts(padded);
  const rows = rowIndices(sizes.map((count, i) => ({ start: firsts[i] as number, count, paddedRows: 0 })));
  return rearrangeRows("unpadding", "inp", source, rows);
}

/** Returns the sizes of chunks, and these sizes rounded up to multiples of `alignSize`. */
function paddedSplits(caller: string, mSplits: readonly number[], alignSize: number) {
  const sizes = splitsOf(caller, "mSplits", mSplits);
  const align = alignment(caller, "alignSize", alignSize) as number;
  return { sizes, padded: sizes.map((size) => Math.ceil(size / align) * align) };
}

/** `count` rows from `start` on, then `paddedRows` rows of +0. */
interface Chunk {
  readonly start: number;
  readonly count: number;
  readonly paddedRows: number;
}

/** Returns the indices of the rows of chunks; -1 for a row of padding. */
function rowIndices(chunks: readonly Chunk[]): Int32Array {
  const rows = new Int32Array(
    chunks.reduce((total, { count, paddedRows }) => total + count + paddedRows, 0),
  ).fill(-1);
  let next = 0;
  for (const { start, count, paddedRows } of chunks) {
    for (let i = 0; i < count; i++) rows[next + i] = start + i;
    next += count + paddedRows;
  }
  return rows;
}

/** Returns the rows of x that `rows` selects. No row is selected twice. The gradient of another row is +0. */
function rearrangeRows(caller: string, name: string, x: Variable, rows: Int32Array): Variable {
  const { shape } = x;
  const count = shape[0] as number;
  return differentiableOne([x], (grad) => {
    const value = wideOf(`${caller}: ${name}`, x.value);
    const { backend } = value;
    const result = takeRows(
      value.reshape([count, value.size / Math.max(count, 1)]),
      tensor(backend, rows, [rows.length], "i32"),
    );
    const inverse = grad ? tensor(backend, invertRows(rows, count), [count], "i32") : undefined;
    return {
      result: result.reshape([rows.length, ...shape.slice(1)]),
      saved: [inverse],
      backward: (gradient) => {
        const gradOutput = wideOf(`${caller}: the gradient`, gradient);
        const matrix = gradOutput.reshape([rows.length, gradOutput.size / Math.max(rows.length, 1)]);
        return inverse ? [takeRows(matrix, inverse).reshape(shape)] : [];
      },
    };
  });
}

/** Returns for each of `count` rows its index in `rows`, or -1 if `rows` does not contain it. */
function invertRows(rows: Int32Array, count: number): Int32Array {
  const inverse = new Int32Array(count).fill(-1);
  for (const [i, row] of rows.entries()) if (row >= 0) inverse[row] = i;
  return inverse;
}

/** Returns the caller's list of numbers of rows. Throws `ArgumentError` for one that is not an integer from 0. */
export function splitsOf(caller: string, name: string, splits: readonly number[]): readonly number[] {
  return ownList(caller, name, splits, (each, i) => rowCount(caller, `${name}[${i}]`, each) as number);
}

/** Throws `ShapeError` unless the first size of `shape` is the sum of `sizes`. */
function requireRows(caller: string, name: string, shape: Shape, sizes: readonly number[]): void {
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (shape[0] === total) return;
  throw new ShapeError(`${caller}: inp is [${shape}]; its first size must be ${total}, the sum of ${name}`);
}

/** Returns the first row of each chunk. */
function chunkStarts(sizes: readonly number[]): readonly number[] {
  let next = 0;
  return sizes.map((size) => {
    const start = next;
    next += size;
    return start;
  });
}
