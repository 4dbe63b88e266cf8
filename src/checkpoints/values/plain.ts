/** Reads the values of a tensor that is not quantized, a few rows at a time. */
import { fileDType } from "../../io/dtypes.js";
import { storageBits, type WideDType } from "../../tensor/shape.js";
import { rowsAtATime } from "../stored/code-rows.js";
import { toFloats } from "../stored/scales.js";
import type { StoredTensor } from "../stored/tensors.js";
import { matricesOf } from "../stored/weight.js";
import type { WeightRows } from "./rows.js";

/** Yields all rows of a tensor of type f32, bf16 or f16, in order. */
export async function* plainRows(
  { shard, entry }: StoredTensor,
  type: WideDType,
): AsyncGenerator<WeightRows, undefined> {
  const [matrices, height, columns] = matricesOf(entry.shape);
  if (columns === 0) return;
  const rowBytes = (columns * storageBits(type)) / 8;
  const step = rowsAtATime(rowBytes);
  for (let row = 0; row < matrices * height; row += step) {
    const rows = Math.min(step, matrices * height - row);
    const bytes = await shard.read(entry, row * rowBytes, (row + rows) * rowBytes);
    yield { row, rows, columns, values: Float64Array.from(toFloats(fileDType(type), bytes)) };
  }
}
