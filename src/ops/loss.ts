/** Softmax cross-entropy. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { commonBackend, execute, requireShape, requireWide } from "./execute.js";

export interface CrossEntropyOptions {
  /** Weight of the uniform distribution in the target, 0 to 1. Default 0. */
  readonly smoothing?: number;
  /** Rows with this target have loss 0 and no gradient. Default -100. */
  readonly ignore?: number;
}

/** The loss of each row, and what its backward pass takes; f32, one for each row. */
export interface CrossEntropyResult {
  readonly loss: Tensor<"f32">;
  readonly maximum: Tensor<"f32">;
  readonly total: Tensor<"f32">;
}

/**
 * log(sum(exp(x))) - x[target] for each row of `logits` [..., V], with label smoothing. `targets` are i32, one a
 * row; one outside 0..V-1 that is not `ignore` gives NaN. Formula and order: assembly/loss.ts.
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  options: CrossEntropyOptions = {},
): CrossEntropyResult {
  const source = requireWide("crossEntropy", "logits", logits);
  const [rows] = asMatrix(logits.shape);
  const labels = requireTargets("crossEntropy", targets, rows);
  using scope = new Scope();
  const backend = commonBackend("crossEntropy", logits, targets);
  const row = (): Tensor<"f32"> => new Tensor(backend, "f32", [rows]);
  const result = { loss: row(), maximum: row(), total: row() };
  execute(backend, "crossEntropy", {
    logits: source,
    targets: labels,
    ...settle("crossEntropy", options),
    ...result,
  });
  for (const made of Object.values(result)) scope.keep(made);
  return result;
}

export interface CrossEntropyBackwardInputs extends Pick<CrossEntropyResult, "maximum" | "total"> {
  /** The gradient of each row's loss, f32. */
  readonly grad: Tensor<"f32">;
  readonly logits: Tensor;
  readonly targets: Tensor;
}

/** The gradient of the logits, in their type: (softmax - target distribution) * grad. */
export function crossEntropyBackward(
  inputs: CrossEntropyBackwardInputs,
  options: CrossEntropyOptions = {},
): Tensor<WideDType> {
  const { grad, maximum, total } = inputs;
  const logits = requireWide("crossEntropyBackward", "logits", inputs.logits);
  const [rows] = asMatrix(logits.shape);
  const targets = requireTargets("crossEntropyBackward", inputs.targets, rows);
  for (const [name, x] of Object.entries({ grad, maximum, total }))
    requireShape("crossEntropyBackward", name, x, [rows]);
  using scope = new Scope();
  const backend = commonBackend("crossEntropyBackward", grad, logits, targets, maximum, total);
  const dx = new Tensor(backend, logits.dtype, logits.shape);
  const settled = settle("crossEntropyBackward", options);
  execute(backend, "crossEntropyBackward", { grad, logits, targets, maximum, total, ...settled, dx });
  return scope.keep(dx);
}

function settle(
  op: string,
  { smoothing = 0, ignore = -100 }: CrossEntropyOptions,
): Required<CrossEntropyOptions> {
  if (!(smoothing >= 0 && smoothing <= 1))
    throw new ArgumentError(`${op}: smoothing is ${smoothing}; it must be 0 to 1`);
  return { smoothing, ignore };
}

function requireTargets(op: string, targets: Tensor, rows: number): Tensor<"i32"> {
  if (!isI32(targets)) throw new DTypeError(`${op}: targets are ${targets.dtype}; they must be i32`);
  if (targets.size === rows) return targets;
  throw new ShapeError(
    `${op}: logits have ${rows} rows and targets [${targets.shape}] ${targets.size} elements; give one a row`,
  );
}

function isI32(x: Tensor): x is Tensor<"i32"> {
  return x.dtype === "i32";
}
