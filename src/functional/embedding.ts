/** Differentiable embedding. */
import { embeddingBackward, embedding as lookUp } from "../ops/rows/embedding.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";

/**
 * The rows of `table` [V, D] that `ids`, i32, name: [...ids.shape, D]. See the operation `embedding`.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for shapes that do not fit each other, `ArgumentError`
 * for anything but a tensor, an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
 */
export function embedding(table: VariableLike, ids: Tensor): Variable {
  const source = variable(table);
  return differentiableOne([source], () => ({
    result: lookUp(wideOf("embedding: the table", source.value), ids),
    backward: (grad) => [
      embeddingBackward(wideOf("embedding: the gradient", grad), ids, source.shape[0] as number),
    ],
  }));
}
