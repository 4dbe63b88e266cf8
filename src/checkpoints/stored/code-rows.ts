/** Reads the codes of a weight a few rows at a time. */
import { asBytes } from "../../tensor/data.js";
import type { Shape } from "../../tensor/shape.js";
import type { Kernels, Place } from "../kernels/kernels.js";
import { CODE_TYPES, unpackCodes } from "./code-types.js";
import { matricesOf, type QuantizedWeight } from "./weight.js";

/** The largest number of bytes that are read at a time, unless one row has more. */
const CHUNK_BYTES = 1 << 19;

/** Codes, one per element. */
export type Codes = Uint8Array | Uint16Array;

/** Some rows of one matrix. */
export interface CodeRows {
  readonly matrix: number;
  /** The first row. */
  readonly row: number;
  readonly rows: number;
  readonly columns: number;
  /** One code per element, valid until the next rows are requested. */
  readonly codes: Codes;
}

/** The unit of rows to read at a time: the tallest block that a quantizer makes, so that blocks are complete. */
const ROW_STEP = 128;

/** The number of rows to read at a time: the largest multiple of `ROW_STEP` in `CHUNK_BYTES`, but at least `ROW_STEP`. */
export function rowsAtATime(rowBytes: number): number {
  return ROW_STEP * Math.max(1, Math.floor(CHUNK_BYTES / Math.max(1, rowBytes * ROW_STEP)));
}

/** Packed bytes of some rows of one matrix, in kernel memory. Valid until the next rows are requested. */
export interface PackedRows extends Omit<CodeRows, "codes"> {
  readonly bytes: Place;
}

/** Yields the bytes of all rows of a weight in order. */
export async function* packedRows(
  kernels: Kernels,
  { type, shape, codes: stored }: QuantizedWeight,
): AsyncGenerator<PackedRows, undefined> {
  const { bits } = CODE_TYPES[type];
  for (const { matrix, row, rows, columns } of rowRanges(shape, bits)) {
    const rowBytes = (columns * bits) / 8;
    const bytes = kernels.place("packed codes", rows * rowBytes);
    await stored.shard.readInto(stored.entry, (matrix * matricesOf(shape)[1] + row) * rowBytes, bytes.bytes);
    yield { matrix, row, rows, columns, bytes };
  }
}

/** Yields all rows of a weight in order. */
export async function* codeRows({
  type,
  shape,
  codes: stored,
  unpacked,
}: QuantizedWeight): AsyncGenerator<CodeRows, undefined> {
  const [matrices, rows, columns] = matricesOf(shape);
  if (matrices * rows * columns === 0) return;
  const bits = unpacked ? 8 * unpacked.width : CODE_TYPES[type].bits;
  const rowBytes = (columns * bits) / 8;
  const step = Math.min(rows, rowsAtATime(rowBytes));
  const codes = bits > 8 ? new Uint16Array(step * columns) : new Uint8Array(step * columns);
  for (let matrix = 0; matrix < matrices; matrix++) {
    for (let row = 0; row < rows; row += step) {
      const count = Math.min(step, rows - row);
      const at = (matrix * rows + row) * rowBytes;
      const bytes = await stored.shard.read(stored.entry, at, at + count * rowBytes);
      if (unpacked) asBytes(codes).set(bytes);
      else if (codes instanceof Uint8Array) unpackCodes(CODE_TYPES[type], bytes, codes);
      yield { matrix, row, rows: count, columns, codes: codes.subarray(0, count * columns) };
    }
  }
}

/** Splits the rows of a weight into the ranges that are read at a time. A weight without elements has none. */
function* rowRanges(shape: Shape, bits: number): Generator<Omit<CodeRows, "codes">, undefined> {
  const [matrices, height, columns] = matricesOf(shape);
  if (matrices * height * columns === 0) return;
  const step = Math.min(height, rowsAtATime((columns * bits) / 8));
  for (let matrix = 0; matrix < matrices; matrix++)
    for (let row = 0; row < height; row += step)
      yield { matrix, row, rows: Math.min(step, height - row), columns };
}
