/** Differentiable losses. */
import { zeros } from "../ops/create.js";
import { scaled } from "../ops/elementwise/scaled.js";
import { embedding } from "../ops/rows/embedding.js";
import {
  type CrossEntropyOptions,
  crossEntropy,
  crossEntropyBackward,
  mse,
  mseBackward,
} from "../ops/rows/loss.js";
import { columnSum } from "../ops/rows/norm.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { requireF32 } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";

/**
 * Returns the mean of the softmax cross-entropy over the rows of `logits` [..., V], as f32 [1]. `targets` holds one i32 class
 * index per row. An ignored row counts in the mean, with loss 0. See the operation `crossEntropy`.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for incompatible shapes, `ArgumentError` for an argument that is
 * not a tensor, an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function crossEntropyLoss(
  logits: VariableLike,
  targets: Tensor,
  options: CrossEntropyOptions = {},
): Variable {
  const x = variable(logits);
  return differentiableOne([x], () => {
    const source = wideOf("crossEntropyLoss: logits", x.value);
    const { loss, maximum, total } = crossEntropy(source, targets, options);
    return {
      result: mean(loss),
      saved: [maximum, total],
      backward: (grad) => {
        const rows = spread(wideOf("crossEntropyLoss: the gradient", grad), loss.size);
        return [crossEntropyBackward({ grad: rows, logits: source, targets, maximum, total }, options)];
      },
    };
  });
}

/**
 * Returns the mean of (x - target)^2 over all elements, as f32 [1]. See the operation `mse`.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for incompatible shapes, `ArgumentError` for an argument that is
 * not a tensor or for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function mseLoss(x: VariableLike, target: Tensor): Variable {
  const source = variable(x);
  return differentiableOne([source], () => {
    const value = wideOf("mseLoss: x", source.value);
    const { loss } = mse(value, target);
    return {
      result: mean(loss),
      backward: (grad) => {
        const rows = spread(wideOf("mseLoss: the gradient", grad), loss.size);
        return [mseBackward({ grad: rows, x: value, target })];
      },
    };
  });
}

/** Returns the mean of the row losses: their sum in the order of `columnSum`, multiplied in f32 by 1 / rows. */
function mean(loss: Tensor<"f32">): Tensor {
  return scaled(columnSum(loss.reshape([loss.size, 1])), 1 / loss.size);
}

/** Turns the gradient [1] of the mean into the gradient [rows] of the row losses, without copying it to the host. */
function spread(grad: Tensor, rows: number): Tensor<"f32"> {
  const everywhere = embedding(grad.reshape([1, 1]), zeros(grad.backend, "i32", [rows]), { outDtype: "f32" });
  return requireF32("loss", "grad", scaled(everywhere, 1 / rows, { out: everywhere }).reshape([rows]));
}
