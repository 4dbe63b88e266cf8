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
 * The mean over rows of softmax cross-entropy, f32 [1], of logits [..., V] and one i32 target per row. Ignored rows count as
 * rows with loss 0. See the operation `crossEntropy`.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for shapes that do not fit each other, `ArgumentError`
 * for anything but a tensor, an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
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
 * The mean of (x - target)^2 over all elements, f32 [1]. See the operation `mse`.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for shapes that do not fit each other, `ArgumentError`
 * for anything but a tensor, an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
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

/** The mean of the row losses: their sum in the order of `columnSum`, times 1 / rows in f32. */
function mean(loss: Tensor<"f32">): Tensor {
  return scaled(columnSum(loss.reshape([loss.size, 1])), 1 / loss.size);
}

/** Expands the gradient [1] of the mean to the gradient of each row's loss, without leaving the device. */
function spread(grad: Tensor, rows: number): Tensor<"f32"> {
  const everywhere = embedding(grad.reshape([1, 1]), zeros(grad.backend, "i32", [rows]), { outDtype: "f32" });
  return requireF32("loss", "grad", scaled(everywhere, 1 / rows, { out: everywhere }).reshape([rows]));
}
