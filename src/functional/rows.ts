/** Differentiable softmax, cumulative sums, and elements by index along a dimension. */
import { swapAxes } from "../ops/layout/layout.js";
import { type CumsumOptions, cumsum as partialSums } from "../ops/rows/cumsum.js";
import { gatherBackward, gather as gathered } from "../ops/rows/gather.js";
import { softmax as shares, softmaxBackward } from "../ops/rows/softmax.js";
import { boolean, integer, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { dimensionOf, MAX_RANK, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options of `functional.softmax`. */
export interface SoftmaxDimension {
  /** The dimension along which the results sum to 1; a negative one counts from the end. Default -1. */
  readonly dim?: number | undefined;
}

const checkOptions = optionsOf<SoftmaxDimension>({ dim: integer(-MAX_RANK, MAX_RANK - 1) });
const checkCumsum = optionsOf<CumsumOptions>({ reverse: boolean });

/**
 * Returns e^(x - max) / sum(e^(x - max)) along dimension `dim`, in the dtype of x. See the operation `softmax`. The gradient
 * is `softmaxBackward` of the result, as rounded to the dtype of x. A dimension other than the last one is exchanged with the
 * last one before and after.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, an
 * invalid option, or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function softmax(x: VariableLike, options: SoftmaxDimension = {}): Variable {
  const { dim = -1 } = checkOptions("softmax", options);
  const source = variableOf("softmax", "x", x);
  const axis = dimensionOf("softmax", "dim", source.shape, dim);
  const isLast = axis === source.shape.length - 1;
  const swapWithLast = (tensor: Tensor<WideDType>) => (isLast ? tensor : swapAxes(tensor, axis, -1));
  return differentiableOne([source], () => {
    const y = shares(swapWithLast(wideOf("softmax: x", source.value)));
    return {
      // a second handle, so that the result may be disposed of before the backward pass
      result: isLast ? y.reshape(y.shape) : swapWithLast(y),
      saved: [y],
      backward: (grad) => [
        swapWithLast(softmaxBackward(swapWithLast(wideOf("softmax: the gradient", grad)), y)),
      ],
    };
  });
}

/**
 * Returns the elements of x whose indices along dimension `dim` are `index`, an i32 tensor with the shape of x except in that
 * dimension, as `torch.gather` does. See the operations `gather` and, for the gradient, `gatherBackward`. `embedding` takes
 * whole rows instead.
 *
 * @throws `DTypeError` for an x that is not f32, bf16 or f16, or an index that is not i32, `ShapeError` for an index of
 * another shape, `ArgumentError` for a dimension that x does not have, an argument that is not a tensor and for tensors on
 * different backends, `DisposedError` for a disposed tensor.
 */
export function gather(x: VariableLike, dim: number, index: Tensor): Variable {
  const source = variableOf("gather", "x", x);
  const axis = dimensionOf("gather", "dim", source.shape, dim);
  const size = source.shape[axis] as number;
  return differentiableOne([source], () => ({
    result: gathered(wideOf("gather: x", source.value), axis, index),
    backward: (grad) => [gatherBackward(wideOf("gather: the gradient", grad), axis, index, size)],
  }));
}

/**
 * Returns the cumulative sums of x along dimension `dim`, in the dtype of x. See the operation `cumsum`. The gradient is
 * `cumsum` of the gradient of the result in the other direction.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, an
 * invalid option, or an argument that is not a tensor, `DisposedError` for a disposed tensor.
 */
export function cumsum(x: VariableLike, dim: number, options: CumsumOptions = {}): Variable {
  const { reverse = false } = checkCumsum("cumsum", options);
  const source = variableOf("cumsum", "x", x);
  const axis = dimensionOf("cumsum", "dim", source.shape, dim);
  return differentiableOne([source], () => ({
    result: partialSums(wideOf("cumsum: x", source.value), axis, { reverse }),
    backward: (grad) => [partialSums(wideOf("cumsum: the gradient", grad), axis, { reverse: !reverse })],
  }));
}
