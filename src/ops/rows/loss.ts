/** Row-wise losses: softmax cross-entropy and mean squared error. */
import { ShapeError } from "../../errors.js";
import { between, type Complete, integer, needed, optionsOf } from "../../options.js";
import { requireF32, requireI32, requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** Options of `crossEntropy` and its gradient. */
export interface CrossEntropyOptions {
  /** Weight of the uniform distribution in the target, 0 to 1. Default 0. */
  readonly smoothing?: number | undefined;
  /** Rows with this target, an i32, have loss 0 and no gradient. Default -100. */
  readonly ignore?: number | undefined;
}

const checkOptions = optionsOf<CrossEntropyOptions>({
  smoothing: between(0, 1),
  ignore: integer(-(2 ** 31), 2 ** 31 - 1),
});

/** The loss of each row, and the statistics for the backward pass; f32, one per row. */
export interface CrossEntropyResult {
  /** The loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
  /** The largest logit of each row, [rows], NaN ignored. */
  readonly maximum: Tensor<"f32">;
  /** The sum of exp(x - maximum) of each row, [rows]. */
  readonly total: Tensor<"f32">;
}

/**
 * log(sum(exp(x))) - x[target] for each row of `logits` [..., V], with label smoothing. `targets` are i32, one per row; a
 * target outside 0..V-1 other than `ignore` gives NaN. Formula and order: assembly/rows/loss.ts.
 *
 * @throws `DTypeError` for logits that are not wide or targets that are not i32, `ShapeError` unless there is one target per
 * row, `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was
 * disposed of.
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  options: CrossEntropyOptions = {},
): CrossEntropyResult {
  const source = requireWide("crossEntropy", "logits", logits);
  const settings = withDefaults("crossEntropy", options);
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
  for (const made of Object.values(result)) scope.keep(made);
  return result;
}

/**
 * The inputs of `crossEntropyBackward`: those of `crossEntropy`, [rows, classes] logits and [rows] targets, its statistics, and
 * the gradient of its losses, [rows].
 */
export interface CrossEntropyBackwardInputs extends Pick<CrossEntropyResult, "maximum" | "total"> {
  /** The gradient of each row's loss, f32. */
  readonly grad: Tensor<"f32">;
  /** The logits of the forward pass, [..., V]. */
  readonly logits: Tensor;
  /** The targets of the forward pass, i32, one per row. */
  readonly targets: Tensor;
}

const checkBackward = optionsOf<CrossEntropyBackwardInputs>({
  grad: needed(requireF32),
  logits: needed(requireWide),
  targets: needed(requireI32),
  maximum: needed(requireF32),
  total: needed(requireF32),
});

/**
 * The gradient of the logits, in their type: (softmax - target distribution) * grad.
 *
 * @throws `DTypeError` for logits that are not wide, targets that are not i32, or others that are not f32, `ShapeError` for
 * tensors that are not one element a row, `ArgumentError` for an option outside its domain or tensors on different backends,
 * `DisposedError` for a tensor that was disposed of.
 */
export function crossEntropyBackward(
  inputs: CrossEntropyBackwardInputs,
  options: CrossEntropyOptions = {},
): Tensor<WideDType> {
  checkBackward("crossEntropyBackward", inputs);
  const settings = withDefaults("crossEntropyBackward", options);
  const { grad, maximum, total } = inputs;
  const logits = requireWide("crossEntropyBackward", "logits", inputs.logits);
  const [rows] = asMatrix(logits.shape);
  const targets = requireTargets("crossEntropyBackward", inputs.targets, rows);
  for (const [name, x] of Object.entries({ grad, maximum, total }))
    requireShape("crossEntropyBackward", name, x, [rows]);
  using scope = new Scope();
  const backend = commonBackend("crossEntropyBackward", grad, logits, targets, maximum, total);
  const dx = new Tensor(backend, logits.dtype, logits.shape);
  execute(backend, "crossEntropyBackward", { grad, logits, targets, maximum, total, ...settings, dx });
  return scope.keep(dx);
}

/**
 * The mean of (x - target)^2 over each row of `x` [..., C], f32, one per row. `target` has the shape of x and any wide type.
 * Formula and order: numerics.md §7.7. NaN and overflow propagate as in the formula; C = 0 gives NaN.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a target of another shape, `ArgumentError` for
 * an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
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

/** The inputs of `mseBackward`: those of `mse`, of one shape, and the gradient of its losses, [rows]. */
export interface MseBackwardInputs {
  /** The gradient of each row's loss, f32. */
  readonly grad: Tensor<"f32">;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor;
  /** The target of the forward pass. */
  readonly target: Tensor;
}

const checkMseBackward = optionsOf<MseBackwardInputs>({
  grad: needed(requireF32),
  x: needed(requireWide),
  target: needed(requireWide),
});

/**
 * The gradient of x, in its type: (x - target) * (2 / C) * grad.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for tensors that do not fit x, `ArgumentError` for
 * an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function mseBackward(inputs: MseBackwardInputs): Tensor<WideDType> {
  checkMseBackward("mseBackward", inputs);
  const x = requireWide("mseBackward", "x", inputs.x);
  const target = requireWide("mseBackward", "target", inputs.target);
  const grad = requireF32("mseBackward", "grad", inputs.grad);
  requireShape("mseBackward", "target", target, x.shape);
  requireShape("mseBackward", "grad", grad, [asMatrix(x.shape)[0]]);
  using scope = new Scope();
  const backend = commonBackend("mseBackward", grad, x, target);
  const dx = new Tensor(backend, x.dtype, x.shape);
  execute(backend, "mseBackward", { grad, x, target, dx });
  return scope.keep(dx);
}

function withDefaults(op: string, options: CrossEntropyOptions): Complete<CrossEntropyOptions> {
  const { smoothing = 0, ignore = -100 } = checkOptions(op, options);
  return { smoothing, ignore };
}

function requireTargets(op: string, targets: Tensor, rows: number): Tensor<"i32"> {
  const labels = requireI32(op, "targets", targets);
  if (targets.size === rows) return labels;
  throw new ShapeError(
    `${op}: logits have ${rows} rows and targets [${targets.shape}] ${targets.size} elements; give one a row`,
  );
}
