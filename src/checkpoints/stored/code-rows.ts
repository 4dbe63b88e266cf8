/** Reads the rows of stored tensors a few at a time. */
import { asBytes } from "../../tensor/data.js";
import type { Shape } from "../../tensor/shape.js";
import type { KernelBuffer, Kernels } from "../kernels/kernels.js";
import { CODE_TYPES, unpackCodes } from "./code-types.js";
import type { StoredTensor } from "./tensors.js";
import { matricesOf, type QuantizedWeight } from "./weight.js";

/** The largest number of bytes that are read at a time, unless one row has more. */
const CHUNK_BYTES = 1 << 19;

/** Codes, one per element. */
export type Codes = Uint8Array | Uint16Array;

/** Consecutive rows of one matrix. */
export interface RowRange {
  readonly matrix: number;
  /** The first row. */
  readonly row: number;
  readonly rows: number;
  readonly columns: number;
}

/** Rows as the file stores them. */
export interface StoredRows extends RowRange {
  /** Valid until the next rows are requested. */
  readonly bytes: Uint8Array;
}

/** Rows with one code per element. */
export interface CodeRows extends StoredRows {
  /** Valid until the next rows are requested. */
  readonly codes: Codes;
}

/** Rows as the file stores them, in kernel memory. */
export interface PackedRows extends RowRange {
  /** Valid until the next rows are requested. */
  readonly bytes: KernelBuffer;
}

/** The unit of row ranges: the height of the tallest block of a quantizer, so that each range has complete blocks. */
const ROW_STEP = 128;

/** The number of rows to read at a time: the largest multiple of `ROW_STEP` in `CHUNK_BYTES`, but at least `ROW_STEP`. */
export function rowsAtATime(rowBytes: number): number {
  return ROW_STEP * Math.max(1, Math.floor(CHUNK_BYTES / Math.max(1, rowBytes * ROW_STEP)));
}

/** Splits the rows of a tensor into ranges that are each read at once. A tensor without elements has no ranges. */
export function* rowRanges(shape: Shape, bits: number): Generator<RowRange, undefined> {
  const [matrices, height, columns] = matricesOf(shape);
  if (matrices * height * columns === 0) return;
  const step = Math.min(height, rowsAtATime((columns * bits) / 8));
  for (let matrix = 0; matrix < matrices; matrix++)
    for (let row = 0; row < height; row += step)
      yield { matrix, row, rows: Math.min(step, height - row), columns };
}

/**
 * Yields all rows of a tensor in order. The tensor has the shape `shape` and elements of `bits` bits. `memory` returns the array
 * that receives the next `length` bytes. A tensor without elements has no rows.
 */
export async function* storedRows(
  { shard, entry }: StoredTensor,
  shape: Shape,
  bits: number,
  memory: (length: number) => Uint8Array,
): AsyncGenerator<StoredRows, undefined> {
  const [, height, columns] = matricesOf(shape);
  const rowBytes = (columns * bits) / 8;
  for (const range of rowRanges(shape, bits)) {
    const bytes = memory(range.rows * rowBytes);
    await shard.readInto(entry, (range.matrix * height + range.row) * rowBytes, bytes);
    yield { ...range, bytes };
  }
}

/** Yields the codes of all rows of a weight in order, as the file stores them. */
export async function* packedRows(
  kernels: Kernels,
  { type, shape, codes }: QuantizedWeight,
): AsyncGenerator<PackedRows, undefined> {
  const memory = (length: number): Uint8Array => kernels.buffer("packed codes", length).bytes;
  for await (const { bytes, ...range } of storedRows(codes, shape, CODE_TYPES[type].bits, memory))
    yield { ...range, bytes: { address: bytes.byteOffset, bytes } };
}

/** Yields the codes of all rows of a weight in order, one per element. */
export async function* codeRows({
  type,
  shape,
  codes: codesTensor,
  unpacked,
}: QuantizedWeight): AsyncGenerator<CodeRows, undefined> {
  const bits = unpacked ? 8 * unpacked.width : CODE_TYPES[type].bits;
  const memory = (length: number): Uint8Array => new Uint8Array(length);
  let codes: Codes = new Uint8Array();
  for await (const { bytes, ...range } of storedRows(codesTensor, shape, bits, memory)) {
    const count = range.rows * range.columns;
    // the first range is the longest
    if (codes.length === 0) codes = bits > 8 ? new Uint16Array(count) : new Uint8Array(count);
    if (unpacked) asBytes(codes).set(bytes);
    else if (codes instanceof Uint8Array) unpackCodes(CODE_TYPES[type], bytes, codes);
    yield { ...range, bytes, codes: codes.subarray(0, count) };
  }
}

/** Codes of the first rows and columns of a matrix, one per element. */
export interface Corner {
  readonly rows: number;
  readonly columns: number;
  readonly codes: Codes;
}

/** Reads the codes of at most `maxRows` rows and `maxColumns` columns of the first matrix of a weight. */
export async function firstCodes(
  kernels: Kernels,
  { type, shape, codes: { shard, entry }, unpacked }: QuantizedWeight,
  maxRows: number,
  maxColumns: number,
): Promise<Corner> {
  const [matrices, height, width] = matricesOf(shape);
  const bits = unpacked ? 8 * unpacked.width : CODE_TYPES[type].bits;
  const rows = Math.min(maxRows, matrices * height * width === 0 ? 0 : height);
  const columns = (maxColumns * bits) % 8 === 0 ? Math.min(maxColumns, width) : width;
  const { bytes } = kernels.buffer("packed codes", (rows * width * bits) / 8);
  await shard.readInto(entry, 0, bytes);
  const codes = bits > 8 ? new Uint16Array(rows * columns) : new Uint8Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    const first = (row * width * bits) / 8;
    const rowBytes = bytes.subarray(first, first + (columns * bits) / 8);
    if (codes instanceof Uint16Array) asBytes(codes).set(rowBytes, 2 * row * columns);
    else if (unpacked) codes.set(rowBytes, row * columns);
    else unpackCodes(CODE_TYPES[type], rowBytes, codes.subarray(row * columns, (row + 1) * columns));
  }
  return { rows, columns, codes };
}
