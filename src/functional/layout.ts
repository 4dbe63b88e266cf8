/** Differentiable functions that move elements without changing them. */
import { ShapeError } from "../errors.js";
import { zeros } from "../ops/create.js";
import { concatenate as joined, placeSlice, slice as sliced } from "../ops/layout/copy-slice.js";
import { swapAxes } from "../ops/layout/layout.js";
import { dimensionsOf, permute as permuted } from "../ops/layout/permute.js";
import { integer, listOf, ownList } from "../options.js";
import { differentiable, differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { dimensionOf, ownShape, type Shape, type WideDType, withSize } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/**
 * Returns the elements of x, in the same order, with another shape.
 *
 * @throws `ShapeError` for a shape with a different number of elements, `DTypeError` for a tensor that is not f32, bf16 or f16,
 * `ArgumentError` for an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function reshape(x: VariableLike, shape: Shape): Variable {
  const newShape = ownShape(shape);
  const source = variableOf("reshape", "x", x);
  return differentiableOne([source], () => ({
    result: wideOf("reshape: x", source.value).reshape(newShape),
    backward: (grad) => [wideOf("reshape: the gradient", grad).reshape(source.shape)],
  }));
}

/**
 * Returns the slices `start` to `end` - 1 of dimension `dim` of x. Negative values of all three count from the end. The default
 * of `end` is the size of the dimension. See the operation `slice`. The gradient has +0 in all other slices.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, a range
 * that is not within the dimension, or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function slice(x: VariableLike, dim: number, start: number, end?: number | undefined): Variable {
  const source = variableOf("slice", "x", x);
  const axis = dimensionOf("slice", "dim", source.shape, dim);
  return differentiableOne([source], () => ({
    result: sliced(wideOf("slice: x", source.value), axis, start, end),
    backward: (grad) => {
      const firstIndex = start < 0 ? start + (source.shape[axis] as number) : start;
      return [placeSlice(wideOf("slice: the gradient", grad), source.shape, axis, firstIndex)];
    },
  }));
}

const sizesOfParts = listOf(integer(0, Number.MAX_SAFE_INTEGER));

/**
 * Divides x along dimension `dim` into tensors with the sizes `splitSizes`, as `split` of PyTorch does with a list. A negative
 * `dim` counts from the end. The gradient has the gradients of the parts one after the other, and +0 for a part without one.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` unless the sizes add up to the size of the
 * dimension, `ArgumentError` for an empty list, a size that is not an integer from 0, a dimension that x does not have, or an
 * argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function split(x: VariableLike, splitSizes: readonly number[], dim = 0): readonly Variable[] {
  const source = variableOf("split", "x", x);
  const axis = dimensionOf("split", "dim", source.shape, dim);
  const sizes = sizesOfParts("split", "splitSizes", splitSizes) as readonly number[];
  let total = 0;
  const starts = sizes.map((size) => {
    total += size;
    return total - size;
  });
  if (total !== source.shape[axis])
    throw new ShapeError(
      `split: splitSizes add up to ${total}; dimension ${axis} of x, [${source.shape}], has size ${source.shape[axis]}`,
    );
  return differentiable([source], () => {
    const value = wideOf("split: x", source.value);
    return {
      results: starts.map((start, i) => sliced(value, axis, start, start + (sizes[i] as number))),
      backward: (grads) => {
        const { backend, dtype, shape } = value;
        const parts = sizes.map((size, i) => {
          const grad = grads[i];
          if (grad) return wideOf("split: the gradient", grad);
          return zeros(backend, dtype, withSize(shape, axis, size));
        });
        return [joined(parts, axis)];
      },
    };
  });
}

/**
 * Returns the tensors one after the other along dimension `dim`, as `cat` of PyTorch does. They have the same dtype, and the same
 * sizes in all other dimensions. A negative `dim` counts from the end. See the operation `concatenate`. The gradient of each
 * tensor is its slice of the gradient of the result.
 *
 * @throws `DTypeError` for tensors that are not of one wide dtype, `ShapeError` for tensors whose other dimensions differ,
 * `ArgumentError` for an empty list, an element that is not a tensor, a dimension that the tensors do not have, or tensors on
 * different backends, `DisposedError` for a disposed tensor.
 */
export function concatenate(tensors: readonly VariableLike[], dim = 0): Variable {
  const sources = ownList(
    "concatenate",
    "tensors",
    tensors,
    (each, i) => variableOf("concatenate", `tensors[${i}]`, each as VariableLike),
    "an array of tensors and variables",
  );
  return differentiableOne(sources, () => {
    const values = sources.map(({ value }, i) => wideOf(`concatenate: tensors[${i}]`, value));
    return {
      result: joined(values, dim),
      backward: (grad) => {
        const gradOutput = wideOf("concatenate: the gradient", grad);
        const axis = dimensionOf("concatenate", "dim", gradOutput.shape, dim);
        let end = 0;
        return sources.map(({ shape, requiresGrad }) => {
          const start = end;
          end += shape[axis] as number;
          return requiresGrad ? sliced(gradOutput, axis, start, end) : undefined;
        });
      },
    };
  });
}

/**
 * Returns x with two dimensions exchanged. Negative dimensions count from the end. See the operation `swapAxes`.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, or an
 * argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function transpose(x: VariableLike, dim0: number, dim1: number): Variable {
  const source = variableOf("transpose", "x", x);
  const firstDim = dimensionOf("transpose", "dim0", source.shape, dim0);
  const secondDim = dimensionOf("transpose", "dim1", source.shape, dim1);
  return movingOperation(
    source,
    "transpose",
    (tensor) => swapAxes(tensor, firstDim, secondDim),
    (grad) => swapAxes(grad, firstDim, secondDim),
  );
}

/**
 * Returns x with its dimensions in the order `dims`: dimension i of the result is dimension `dims[i]` of x. Negative dimensions
 * count from the end. See the operation `permute`.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` unless `dims` has each dimension of x once, and
 * for an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function permute(x: VariableLike, dims: readonly number[]): Variable {
  const source = variableOf("permute", "x", x);
  const order = dimensionsOf(source.shape, dims);
  const inverse = order.map((_, dim) => order.indexOf(dim));
  return movingOperation(
    source,
    "permute",
    (tensor) => permuted(tensor, order),
    (grad) => permuted(grad, inverse),
  );
}

/** A function that moves the elements of one tensor by `forward`, and the elements of the gradient by `backward`. */
function movingOperation(
  source: Variable,
  caller: string,
  forward: (x: Tensor<WideDType>) => Tensor<WideDType>,
  backward: (grad: Tensor<WideDType>) => Tensor<WideDType>,
): Variable {
  return differentiableOne([source], () => ({
    result: forward(wideOf(`${caller}: x`, source.value)),
    backward: (grad) => [backward(wideOf(`${caller}: the gradient`, grad))],
  }));
}
