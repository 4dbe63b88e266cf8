/** Elements by index along a dimension, and the gradient. */
import { ShapeError } from "../../errors.js";
import { requireI32, requireWide } from "../../tensor/require.js";
import { dimensionOf, type Shape, sameShape, type WideDType, withSize } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute } from "../execute.js";
import { alongLast } from "../layout/layout.js";

/**
 * Returns the elements of x whose indices along dimension `dim` are `index`, as `torch.gather` does: for dim 1, element [i, j]
 * is x[i, index[i, j]]. `index` is an i32 tensor with the shape of x except in dimension `dim`. An index outside of the
 * dimension gives NaN. `embedding` takes whole rows instead.
 *
 * @throws `DTypeError` for an x that is not f32, bf16 or f16, or an index that is not i32, `ShapeError` for an index of
 * another shape, `ArgumentError` for a dimension that x does not have and for tensors on different backends, `DisposedError`
 * for a disposed tensor.
 */
export function gather(x: Tensor, dim: number, index: Tensor): Tensor<WideDType> {
  const source = requireWide("gather", "x", x);
  const ids = requireI32("gather", "index", index);
  const axis = dimensionOf("gather", "dim", x.shape, dim);
  requireIndex("gather", index, x.shape, axis);
  const backend = commonBackend("gather", x, index);
  return alongLast(axis, [source, ids], (values, indices) => {
    const out = new Tensor(backend, source.dtype, indices.shape);
    return compute("gather", { x: values, ids: indices, out });
  });
}

/**
 * Returns the gradient of x of `gather`, given the gradient `grad` of the result and the size of dimension `dim` of x. An
 * element is the sum of the gradients of those results that have its index, added in f32 in ascending order from +0 and
 * rounded once.
 *
 * @throws `DTypeError` for a gradient that is not f32, bf16 or f16, or an index that is not i32, `ShapeError` unless `grad`
 * and `index` have the same shape, or for an invalid size, `ArgumentError` for a dimension that they do not have and for
 * tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function gatherBackward(grad: Tensor, dim: number, index: Tensor, size: number): Tensor<WideDType> {
  const gradOutput = requireWide("gatherBackward", "grad", grad);
  const ids = requireI32("gatherBackward", "index", index);
  const axis = dimensionOf("gatherBackward", "dim", grad.shape, dim);
  if (!sameShape(index.shape, grad.shape))
    throw new ShapeError(
      `gatherBackward: index is [${index.shape}]; it must be [${grad.shape}], the shape of grad`,
    );
  const backend = commonBackend("gatherBackward", grad, index);
  return alongLast(axis, [gradOutput, ids], (values, indices) => {
    const out = new Tensor(backend, gradOutput.dtype, withSize(values.shape, values.shape.length - 1, size));
    return compute("gatherBackward", { grad: values, ids: indices, out });
  });
}

/** Throws `ShapeError` unless the index has the shape of x except in dimension `axis`. */
function requireIndex(op: string, index: Tensor, shape: Shape, axis: number): void {
  const count = index.shape[axis];
  if (count !== undefined && sameShape(index.shape, withSize(shape, axis, count))) return;
  throw new ShapeError(
    `${op}: index is [${index.shape}], and x is [${shape}]; they may differ only in the size of dimension ${axis}`,
  );
}
