/** Losses per row: softmax cross-entropy and mean squared error. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { between, type Complete, integer, needed, type OptionTable, optionsOf } from "../../options.js";
import { requireF32, requireI32, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** Options of `crossEntropy` and `crossEntropyBackward`. All fields are optional. */
export interface CrossEntropyOptions {
  /** Label smoothing: the weight of the uniform distribution in the target distribution, 0 to 1. Default 0. */
  readonly smoothing?: number | undefined;
  /** A target value, an i32. Rows with this target have loss 0 and gradient 0. Default -100. */
  readonly ignore?: number | undefined;
}

/** Options of `crossEntropyBackward`. All fields are optional. */
export interface CrossEntropyBackwardOptions extends CrossEntropyOptions {
  /** The class of the first column, if the columns are a subset of all classes. Default 0. */
  readonly first?: number | undefined;
  /** The number of all classes. Default: the number of classes up to the last column. */
  readonly classes?: number | undefined;
}

/** @shared The check of each field of `CrossEntropyOptions`. */
export const CROSS_ENTROPY_OPTIONS: OptionTable<CrossEntropyOptions> = {
  smoothing: between(0, 1),
  ignore: integer(-(2 ** 31), 2 ** 31 - 1),
};
const checkOptions = optionsOf(CROSS_ENTROPY_OPTIONS);
const checkBackwardOptions = optionsOf<CrossEntropyBackwardOptions>({
  ...CROSS_ENTROPY_OPTIONS,
  first: integer(0, 2 ** 31 - 1),
  classes: integer(0, 2 ** 31),
});

/** The results of `crossEntropy`, f32 with one element per row: the losses, and the statistics that the backward pass needs. */
export interface CrossEntropyResult {
  /** The loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
  /** The maximum logit of each row, [rows]. NaN is ignored. */
  readonly maximum: Tensor<"f32">;
  /** The sum of exp(logit - maximum) over each row, [rows]. */
  readonly total: Tensor<"f32">;
}

/**
 * Computes the loss log(sum(exp(x))) - x[target] of each row x of `logits` [..., V], with optional label smoothing. `targets`
 * holds one i32 class index per row. A target outside 0..V-1 other than `ignore` gives NaN. The exact formula and summation
 * order are in assembly/rows/loss.ts.
 *
 * @throws `DTypeError` for logits that are not f32, bf16 or f16, or targets that are not i32, `ShapeError` unless there is one
 * target per row, `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed
 * tensor.
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  options: CrossEntropyOptions = {},
): CrossEntropyResult {
  const source = requireWide("crossEntropy", "logits", logits);
  const settings = withDefaults(checkOptions("crossEntropy", options));
  const [rows] = asMatrix(logits.shape);
  const labels = requireTargets("crossEntropy", targets, rows);
  using scope = new Scope();
  const backend = commonBackend("crossEntropy", logits, targets);
  const row = (): Tensor<"f32"> => new Tensor(backend, "f32", [rows]);
  const result = { loss: row(), maximum: row(), total: row() };
  execute(backend, "crossEntropy", {
    logits: source,
    targets: labels,
    ...settings,
    ...result,
  });
  for (const tensor of Object.values(result)) scope.keep(tensor);
  return result;
}

/** The inputs of `crossEntropyBackward`: the inputs and the statistics of the forward pass, and the gradient of the losses. */
export interface CrossEntropyBackwardInputs extends Pick<CrossEntropyResult, "maximum" | "total"> {
  /** The gradient of each row's loss, f32 [rows]. */
  readonly grad: Tensor<"f32">;
  /** The logits of the forward pass, [..., V]. */
  readonly logits: Tensor;
  /** The targets of the forward pass, i32, one per row. */
  readonly targets: Tensor;
}

const checkBackward = optionsOf<CrossEntropyBackwardInputs>(
  {
    grad: needed(requireF32),
    logits: needed(requireWide),
    targets: needed(requireI32),
    maximum: needed(requireF32),
    total: needed(requireF32),
  },
  "inputs",
);

/**
 * Computes the gradient of the logits, in their shape and dtype: (softmax - target distribution) * grad. The columns may be a
 * subset of all classes; `maximum` and `total` are then taken over all classes.
 *
 * @throws `DTypeError` for logits that are not f32, bf16 or f16, targets that are not i32, or another input that is not f32,
 * `ShapeError` for an input that does not have one element per row, `ArgumentError` for an invalid option value or tensors on
 * different backends, `DisposedError` for a disposed tensor.
 */
export function crossEntropyBackward(
  inputs: CrossEntropyBackwardInputs,
  options: CrossEntropyBackwardOptions = {},
): Tensor<WideDType> {
  const ownInputs = checkBackward("crossEntropyBackward", inputs);
  const ownOptions = checkBackwardOptions("crossEntropyBackward", options);
  const settings = withDefaults(ownOptions);
  const { grad, maximum, total } = ownInputs;
  const logits = requireWide("crossEntropyBackward", "logits", ownInputs.logits);
  const [rows, columns] = asMatrix(logits.shape);
  const { first = 0, classes = first + columns } = ownOptions;
  if (first + columns > classes)
    throw new ArgumentError(
      `crossEntropyBackward: logits have the classes ${first} to ${first + columns - 1}, and classes is ${classes}; give the number of all classes`,
    );
  const targets = requireTargets("crossEntropyBackward", ownInputs.targets, rows);
  for (const [name, x] of Object.entries({ grad, maximum, total }))
    requireShape("crossEntropyBackward", name, x, [rows]);
  using scope = new Scope();
  const backend = commonBackend("crossEntropyBackward", grad, logits, targets, maximum, total);
  const dx = new Tensor(backend, logits.dtype, logits.shape);
  execute(backend, "crossEntropyBackward", {
    ...{ grad, logits, targets, maximum, total, first, classes },
    ...settings,
    dx,
  });
  return scope.keep(dx);
}

/**
 * Computes the mean of (x - target)^2 over each row of `x` [..., C], as f32 [rows]. `target` has the shape of x; both are f32,
 * bf16 or f16. The formula and the summation order are in numerics.md §7.7. NaN and overflow propagate as in the formula; C = 0
 * gives NaN.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a target that does not have the shape of x,
 * `ArgumentError` for tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function mse(x: Tensor, target: Tensor): { readonly loss: Tensor<"f32"> } {
  const source = requireWide("mse", "x", x);
  const aim = requireWide("mse", "target", target);
  requireShape("mse", "target", target, x.shape);
  using scope = new Scope();
  const backend = commonBackend("mse", x, target);
  const loss = new Tensor(backend, "f32", [asMatrix(x.shape)[0]]);
  execute(backend, "mse", { x: source, target: aim, loss });
  return { loss: scope.keep(loss) };
}

/** The inputs of `mseBackward`: the inputs of the forward pass and the gradient of the losses. */
export interface MseBackwardInputs {
  /** The gradient of each row's loss, f32 [rows]. */
  readonly grad: Tensor<"f32">;
  /** The input of the forward pass, [..., C]. */
  readonly x: Tensor;
  /** The target of the forward pass, in the shape of x. */
  readonly target: Tensor;
}

const checkMseBackward = optionsOf<MseBackwardInputs>(
  {
    grad: needed(requireF32),
    x: needed(requireWide),
    target: needed(requireWide),
  },
  "inputs",
);

/**
 * Computes the gradient of x, in its shape and dtype: (x - target) * (2 / C) * grad.
 *
 * @throws `DTypeError` for an x or target that is not f32, bf16 or f16, or a grad that is not f32, `ShapeError` for a target
 * that does not have the shape of x, or a grad that is not [rows], `ArgumentError` for tensors on different backends,
 * `DisposedError` for a disposed tensor.
 */
export function mseBackward(inputs: MseBackwardInputs): Tensor<WideDType> {
  const ownInputs = checkMseBackward("mseBackward", inputs);
  const x = requireWide("mseBackward", "x", ownInputs.x);
  const target = requireWide("mseBackward", "target", ownInputs.target);
  const grad = requireF32("mseBackward", "grad", ownInputs.grad);
  requireShape("mseBackward", "target", target, x.shape);
  requireShape("mseBackward", "grad", grad, [asMatrix(x.shape)[0]]);
  using scope = new Scope();
  const backend = commonBackend("mseBackward", grad, x, target);
  const dx = new Tensor(backend, x.dtype, x.shape);
  execute(backend, "mseBackward", { grad, x, target, dx });
  return scope.keep(dx);
}

/** @shared */
export function withDefaults({
  smoothing = 0,
  ignore = -100,
}: CrossEntropyOptions): Complete<CrossEntropyOptions> {
  return { smoothing, ignore };
}

/** @shared */
export function requireTargets(op: string, targets: Tensor, rows: number): Tensor<"i32"> {
  const labels = requireI32(op, "targets", targets);
  if (targets.size === rows) return labels;
  throw new ShapeError(
    `${op}: logits have ${rows} rows and targets [${targets.shape}] ${targets.size} elements; give one a row`,
  );
}
