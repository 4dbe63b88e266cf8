/** Differentiable sums, means, and expansions, whose gradients are sums. */

import { scaled } from "../ops/elementwise/operators.gen.js";
import { expand as expanded } from "../ops/layout/copy-slice.js";
import { mean as meanOf, SUM_DIMENSIONS, type SumDimensions, summed, sum as sumOf } from "../ops/rows/sum.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { ownShape, type Shape, sameShape, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

const checkOptions = optionsOf<SumDimensions>(SUM_DIMENSIONS);

/**
 * Returns the sums of x over the dimensions `dim`, in the dtype of x. Without `dim` it is the sum of all elements, a scalar of
 * shape []. See the operation `sum`. The gradient is the gradient of the result, repeated.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, one that
 * is listed twice, an invalid option value, or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function sum(x: VariableLike, options: SumDimensions = {}): Variable {
  const dimensions = checkOptions("sum", options);
  const source = variableOf("sum", "x", x);
  const { keptShape } = summed("sum", source.shape, dimensions);
  return differentiableOne([source], () => ({
    result: sumOf(wideOf("sum: x", source.value), dimensions),
    backward: (grad) => [expanded(wideOf("sum: the gradient", grad).reshape(keptShape), source.shape)],
  }));
}

/**
 * Returns the means of x over the dimensions `dim`, in the dtype of x. Without `dim` it is the mean of all elements, a scalar of
 * shape []. See the operation `mean`. The gradient is the gradient of the result times the f32 value of 1 / n, rounded to the
 * dtype of x and repeated, where n is the number of elements of a mean.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, one that
 * is listed twice, an invalid option value, or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function mean(x: VariableLike, options: SumDimensions = {}): Variable {
  const dimensions = checkOptions("mean", options);
  const source = variableOf("mean", "x", x);
  const { keptShape, count } = summed("mean", source.shape, dimensions);
  return differentiableOne([source], () => ({
    result: meanOf(wideOf("mean: x", source.value), dimensions),
    backward: (grad) => {
      const share = scaled(wideOf("mean: the gradient", grad), 1 / count);
      return [expanded(share.reshape(keptShape), source.shape)];
    },
  }));
}

/**
 * Returns x with the shape `shape`, in which dimensions of size 1 are repeated. See the operation `expand`. The gradient is the
 * sum, as of the operation `sum`, over the dimensions that were repeated.
 *
 * @throws `ShapeError` for a shape to which the shape of x cannot be expanded, `DTypeError` for a tensor that is not f32, bf16 or
 * f16, `ArgumentError` for an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function expand(x: VariableLike, shape: Shape): Variable {
  const target = ownShape(shape);
  const source = variableOf("expand", "x", x);
  return differentiableOne([source], () => {
    const value = wideOf("expand: x", source.value);
    return {
      result: expanded(value, target),
      backward: (grad) => [sumTo(value.shape, value.dtype, wideOf("expand: the gradient", grad))],
    };
  });
}

/**
 * Returns the gradient of a tensor of this shape and dtype that was expanded to the shape of `grad`: the sum over the dimensions
 * that were repeated.
 */
export function sumTo(shape: Shape, dtype: WideDType, grad: Tensor<WideDType>): Tensor<WideDType> {
  if (sameShape(shape, grad.shape)) return grad;
  const missingDims = grad.shape.length - shape.length;
  const dim = [...grad.shape.keys()].filter(
    (axis) => axis < missingDims || shape[axis - missingDims] !== grad.shape[axis],
  );
  return sumOf(grad, { dim, outDtype: dtype }).reshape(shape);
}
