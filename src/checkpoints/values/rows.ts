/** Rows of values, for callers and for kernels. */

import { fileDType } from "../../io/dtypes.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import { storedRows } from "../stored/code-rows.js";
import { toFloats } from "../stored/scales.js";
import type { StoredTensor } from "../stored/tensors.js";
import { matricesOf } from "../stored/weight.js";

/** Consecutive rows of a weight [..., N, K]; rows are counted over all matrices, as in [... * N, K]. */
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

/** Yields all rows of a tensor of type f32, bf16 or f16, in order. A tensor without elements has none. */
export async function* plainRows(
  tensor: StoredTensor,
  type: WideDType,
): AsyncGenerator<WeightRows, undefined> {
  const [matrices, height, columns] = matricesOf(tensor.entry.shape);
  const memory = (length: number): Uint8Array => new Uint8Array(length);
  const rowGroups = storedRows(tensor, [matrices * height, columns], storageBits(type), memory);
  for await (const { row, rows, bytes } of rowGroups)
    yield { row, rows, columns, values: Float64Array.from(toFloats(fileDType(type), bytes)) };
}
