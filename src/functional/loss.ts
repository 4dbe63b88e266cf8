/** Differentiable losses. */
import type { ProcessGroup } from "../collectives/group.js";
import { zeros } from "../ops/create.js";
import { scaled } from "../ops/elementwise/operators.gen.js";
import { embedding } from "../ops/rows/embedding.js";
import {
  CROSS_ENTROPY_OPTIONS,
  type CrossEntropyBackwardOptions,
  type CrossEntropyOptions,
  type CrossEntropyResult,
  crossEntropy,
  crossEntropyBackward,
  mse,
  mseBackward,
} from "../ops/rows/loss.js";
import { lossMaximum, lossOfSums, lossSums } from "../ops/rows/loss-parts.js";
import { columnSum } from "../ops/rows/norm.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { requireF32 } from "../tensor/require.js";
import { asMatrix, type WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { allReduceSum, groupOf, processGroup, rankIds } from "./ranks.js";

/** Options of `crossEntropyLoss`. All fields are optional. */
export interface CrossEntropyLossOptions extends CrossEntropyOptions {
  /** The ranks among which the classes are divided evenly, in order of ranks. Default: this rank has all classes. */
  readonly group?: ProcessGroup | undefined;
}

const checkLoss = optionsOf<CrossEntropyLossOptions>({ ...CROSS_ENTROPY_OPTIONS, group: processGroup });

/**
 * Returns the mean of the softmax cross-entropy over the rows of `logits` [..., V], as f32 [1]. `targets` holds one i32 class
 * index per row. An ignored row counts in the mean, with loss 0. See the operation `crossEntropy`.
 *
 * With `group` the columns of `logits` are this rank's classes, as in the result of a column-parallel layer. Targets are indices
 * over all classes. All ranks must give the same targets, and all get the same loss (numerics.md §7.4).
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for incompatible shapes, `ArgumentError` for an argument that is
 * not a tensor, an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor or group,
 * `DistributedError` for a group that has failed, and for ranks with different numbers of classes.
 */
export function crossEntropyLoss(
  logits: VariableLike,
  targets: Tensor,
  options: CrossEntropyLossOptions = {},
): Variable {
  const ownOptions = checkLoss("crossEntropyLoss", options);
  const { group: _, ...settings } = ownOptions;
  const x = variableOf("crossEntropyLoss", "logits", logits);
  const group = groupOf("crossEntropyLoss", x.backend, ownOptions);
  return differentiableOne([x], () => {
    const source = wideOf("crossEntropyLoss: logits", x.value);
    const { loss, maximum, total, ...part } = group
      ? dividedCrossEntropy(group, source, targets, settings)
      : crossEntropy(source, targets, settings);
    return {
      result: mean(loss),
      saved: [maximum, total],
      backward: (grad) => {
        const rows = spread(wideOf("crossEntropyLoss: the gradient", grad), loss.size);
        const inputs = { grad: rows, logits: source, targets, maximum, total };
        return [crossEntropyBackward(inputs, { ...settings, ...part })];
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
  const source = variableOf("mseLoss", "x", x);
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

/** Returns the loss of each row, and the row statistics over the classes of all ranks. */
function dividedCrossEntropy(
  group: ProcessGroup,
  logits: Tensor<WideDType>,
  targets: Tensor,
  options: CrossEntropyOptions,
): CrossEntropyResult & Pick<CrossEntropyBackwardOptions, "first" | "classes"> {
  const [, columns] = asMatrix(logits.shape);
  const { first, vocabulary: classes } = rankIds(group, columns);
  const maximum = lossMaximum(logits);
  group.withSubject(`${columns} classes on each rank`, () => group.reduceMax([maximum]));
  const sums = allReduceSum(group, lossSums({ logits, targets, maximum }, { first, ...options }));
  const loss = lossOfSums(sums, targets, { classes, ...options });
  return { loss, maximum, total: sums.view(0, [loss.size]), first, classes };
}

/** Returns the mean of the row losses: their sum in the order of `columnSum`, multiplied in f32 by 1 / rows. */
function mean(loss: Tensor<"f32">): Tensor {
  return scaled(columnSum(loss.reshape([loss.size, 1])), 1 / loss.size);
}

/** Turns the gradient [1] of the mean into the gradient [rows] of the row losses, without copying it to the host. */
function spread(grad: Tensor, rows: number): Tensor<"f32"> {
  const gradRows = embedding(grad.reshape([1, 1]), zeros(grad.backend, "i32", [rows]), { outDtype: "f32" });
  return requireF32("loss", "grad", scaled(gradRows, 1 / rows, { out: gradRows }).reshape([rows]));
}
