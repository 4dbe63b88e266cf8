/**
 * Softmax cross-entropy of logits whose columns are sharded over ranks. The results of the ranks are combined between the steps
 * (functional/loss.ts). Each rank has all rows.
 */
import { requireF32, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";
import { type CrossEntropyOptions, requireTargets, withDefaults } from "./loss.js";

/** @shared The range of a rank's classes among all classes. */
export interface ClassRange {
  /** The class of this rank's first column. */
  readonly first: number;
  /** The number of all classes. */
  readonly classes: number;
}

/**
 * Returns the maximum of each row of `logits` [..., V], NaN ignored, as f32 [rows]; -infinity for a row without numbers.
 *
 * @throws `DTypeError` for logits that are not f32, bf16 or f16, `DisposedError` for a disposed tensor.
 * @shared
 */
export function lossMaximum(logits: Tensor): Tensor<"f32"> {
  const source = requireWide("lossMaximum", "logits", logits);
  using scope = new Scope();
  const maximum = new Tensor(source.backend, "f32", [asMatrix(source.shape)[0]]);
  execute(source.backend, "lossMaximum", { logits: source, maximum });
  return scope.keep(maximum);
}

/** @shared The inputs of `lossSums`. */
export interface LossTerms {
  /** This rank's columns of the logits, [..., V]. */
  readonly logits: Tensor;
  /** The target of each row, i32. */
  readonly targets: Tensor;
  /** The maximum of each row over all classes, f32 [rows]. */
  readonly maximum: Tensor;
}

/**
 * Returns the sums over this rank's classes from which the losses of rows are computed, f32 [2, rows]: the sum of exp(x -
 * maximum), and x - maximum of the target, which is -0 where another rank has the target. With label smoothing it is [3, rows],
 * with the sum of x - maximum.
 *
 * @throws `DTypeError`, `ShapeError`, `ArgumentError` and `DisposedError` as `crossEntropy`.
 * @shared
 */
export function lossSums(
  { logits, targets, maximum }: LossTerms,
  { first, smoothing }: Pick<ClassRange, "first"> & Pick<CrossEntropyOptions, "smoothing">,
): Tensor<"f32"> {
  const source = requireWide("lossSums", "logits", logits);
  const [rows] = asMatrix(source.shape);
  const labels = requireTargets("lossSums", targets, rows);
  const tops = requireF32("lossSums", "maximum", maximum);
  requireShape("lossSums", "maximum", tops, [rows]);
  using scope = new Scope();
  const backend = commonBackend("lossSums", logits, targets, maximum);
  const sums = new Tensor(backend, "f32", [sumsOf(smoothing), rows]);
  execute(backend, "lossSums", { logits: source, targets: labels, first, maximum: tops, sums });
  return scope.keep(sums);
}

/**
 * Returns the loss of each row, f32 [rows], from the sums over all classes.
 *
 * @throws `DTypeError`, `ShapeError`, `ArgumentError` and `DisposedError` as `crossEntropy`.
 * @shared
 */
export function lossOfSums(
  sums: Tensor,
  targets: Tensor,
  { classes, ...options }: Pick<ClassRange, "classes"> & CrossEntropyOptions,
): Tensor<"f32"> {
  const settings = withDefaults(options);
  const added = requireF32("lossOfSums", "sums", sums);
  const rows = added.shape.at(-1) ?? 0;
  requireShape("lossOfSums", "sums", added, [sumsOf(settings.smoothing), rows]);
  const labels = requireTargets("lossOfSums", targets, rows);
  using scope = new Scope();
  const backend = commonBackend("lossOfSums", sums, targets);
  const loss = new Tensor(backend, "f32", [rows]);
  execute(backend, "lossOfSums", { sums: added, targets: labels, classes, ...settings, loss });
  return scope.keep(loss);
}

/** Returns the number of sums of a row: 3 with smoothing, else 2. A smoothing that rounds to 0 in f32 is no smoothing. */
function sumsOf(smoothing = 0): 2 | 3 {
  return Math.fround(smoothing) === 0 ? 2 : 3;
}
