/** Reads the codes of a weight a few rows at a time. */
import { CODE_TYPES, unpackCodes } from "./code-types.js";
import { matricesOf, type QuantizedWeight } from "./weight.js";

/** The largest number of bytes that are read at a time, unless one row has more. */
const CHUNK_BYTES = 1 << 19;

/** Some rows of one matrix. */
export interface CodeRows {
  readonly matrix: number;
  /** The first row. */
  readonly row: number;
  readonly rows: number;
  readonly columns: number;
  /** One code per element, valid until the next rows are asked for. */
  readonly codes: Uint8Array;
}

/** No block that shares a scale has more rows, so that whole blocks are read together. */
const ROW_STEP = 128;

/** The number of whole rows that are read at a time: a multiple of `ROW_STEP`, as many as `CHUNK_BYTES` hold. */
export function rowsAtATime(rowBytes: number): number {
  return ROW_STEP * Math.max(1, Math.floor(CHUNK_BYTES / Math.max(1, rowBytes * ROW_STEP)));
}

/** Yields all rows of a weight in order. */
export async function* codeRows({
  type,
  shape,
  codes: stored,
}: QuantizedWeight): AsyncGenerator<CodeRows, undefined> {
  const [matrices, rows, columns] = matricesOf(shape);
  if (matrices * rows * columns === 0) return;
  const { bits } = CODE_TYPES[type];
  const rowBytes = (columns * bits) / 8;
  const step = Math.min(rows, rowsAtATime(rowBytes));
  const codes = new Uint8Array(step * columns);
  for (let matrix = 0; matrix < matrices; matrix++) {
    for (let row = 0; row < rows; row += step) {
      const count = Math.min(step, rows - row);
      const at = (matrix * rows + row) * rowBytes;
      unpackCodes(CODE_TYPES[type], await stored.shard.read(stored.entry, at, at + count * rowBytes), codes);
      yield { matrix, row, rows: count, columns, codes: codes.subarray(0, count * columns) };
    }
  }
}
