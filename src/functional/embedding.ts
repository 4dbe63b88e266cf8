/** Differentiable embedding. */
import { embeddingBackward, embedding as lookUp } from "../ops/rows/embedding.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { borrowed } from "../tape/uses.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { Tensor } from "../tensor/tensor.js";

/**
 * Returns the rows of `table` [V, D] whose indices are `ids`, an i32 tensor. The result is [...ids.shape, D]. See the operation
 * `embedding`.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for incompatible shapes, `ArgumentError` for an argument that is
 * not a tensor or for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function embedding(table: VariableLike, ids: Tensor): Variable {
  const source = variable(table);
  return differentiableOne([source], () => ({
    result: lookUp(wideOf("embedding: the table", borrowed(source)), ids),
    backward: (grad) => [
      embeddingBackward(wideOf("embedding: the gradient", grad), ids, source.shape[0] as number),
    ],
  }));
}
