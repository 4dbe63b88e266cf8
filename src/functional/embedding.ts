/** Rows of a table as variables. */
import { embeddingBackward, embedding as lookUp } from "../ops/rows/embedding.js";
import { wideOf } from "../tape/value.js";
import { differentiableOne, type Variable, type VariableLike, variable } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";

/** The rows of `table` [V, D] that `ids`, i32, name: [...ids.shape, D]. See the operation `embedding`. */
export function embedding(table: VariableLike, ids: Tensor): Variable {
  const source = variable(table);
  return differentiableOne([source], () => ({
    result: lookUp(wideOf("embedding: the table", source.value), ids),
    backward: (grad) => [
      embeddingBackward(wideOf("embedding: the gradient", grad), ids, source.shape[0] as number),
    ],
  }));
}
