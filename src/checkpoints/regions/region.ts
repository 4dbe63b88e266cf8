/** Rectangular regions of tensors. */
import { ArgumentError } from "../../errors.js";
import { integer, needed, optionsOf } from "../../options.js";

/** A rectangle of a tensor [..., N, K], whose rows are counted over all matrices, as in [... * N, K]. */
export interface MatrixRegion {
  /** The first row. */
  readonly row: number;
  /** The first column. */
  readonly column: number;
  /** The number of rows, at least 1. */
  readonly rows: number;
  /** The number of columns, at least 1. */
  readonly columns: number;
}

const checkRegion = optionsOf<MatrixRegion>(
  {
    row: needed(integer(0)),
    column: needed(integer(0)),
    rows: needed(integer(1)),
    columns: needed(integer(1)),
  },
  "region",
);

/** Returns a copy of the region. Throws `ArgumentError` unless it lies within [rows, columns]. */
export function requireRegion(
  caller: string,
  value: MatrixRegion,
  [rows, columns]: readonly [number, number],
): MatrixRegion {
  const region = checkRegion(caller, value);
  if (region.row + region.rows <= rows && region.column + region.columns <= columns) return region;
  throw new ArgumentError(
    `${caller}: region has rows ${region.row} to ${region.row + region.rows} and columns ${region.column} to ${region.column + region.columns}; the tensor has ${rows} rows and ${columns} columns`,
  );
}

/**
 * The range of bytes that holds codes `first` to `first + count`. It begins at a multiple of eight codes, because eight codes of
 * any size fill whole bytes. `offset` is the number of codes in the range before the first requested code.
 */
export function bytesOfCodes(
  first: number,
  count: number,
  bits: number,
): { readonly offset: number; readonly begin: number; readonly end: number } {
  const offset = first % 8;
  return { offset, begin: ((first - offset) * bits) / 8, end: Math.ceil(((first + count) * bits) / 8) };
}
