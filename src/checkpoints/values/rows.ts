/** Rows of values, as callers read them and as kernels take them. */
import type { WideDType } from "../../tensor/shape.js";

/** Consecutive rows of a weight [..., N, K] that is seen as a matrix of all its rows, [... * N, K]. */
export interface WeightRows {
  /** The first row. */
  readonly row: number;
  /** The number of rows. */
  readonly rows: number;
  /** The number of columns, K. */
  readonly columns: number;
  /** The values, row by row. Valid until the next rows are requested. */
  readonly values: Float64Array;
}

/** Rows of values in memory, in an element type. */
export interface Rows {
  readonly rows: number;
  readonly columns: number;
  readonly type: WideDType | "f64";
  /** The elements, row by row, little endian. */
  readonly values: ArrayBufferView;
}
