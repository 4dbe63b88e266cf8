/** LayerNorm and RMSNorm, forward and backward, and the column sums of bias gradients. */
import type { NormArgs } from "../../backends/ops.js";
import { ArgumentError } from "../../errors.js";
import { atLeastZero, boolean, needed, optionsOf } from "../../options.js";
import { requireF32, requireWide, wideDType } from "../../tensor/require.js";
import { type Owned, orDispose, Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireBackendOf, requireShape } from "../execute.js";

/** Options of `layerNorm` and `rmsNorm`; every field may be left out. */
export interface NormOptions {
  /** Default 1e-5. */
  readonly eps?: number | undefined;
  /** Whether gamma is stored minus 1. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
  /** Default: the type of x. */
  readonly outDtype?: WideDType | undefined;
}

const FORM = { eps: atLeastZero, zeroCenteredGamma: boolean };
const checkOptions = optionsOf<NormOptions>({ ...FORM, outDtype: wideDType });

/** The statistics that a norm's backward pass needs, f32, one per row. */
export interface NormStatistics {
  /** Absent in RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** 1 / sqrt(variance + eps) of each row. */
  readonly rstd: Tensor<"f32">;
}

/** A norm's result, and the statistics for its backward pass. */
export interface NormResult extends NormStatistics {
  /** The norm, in the shape of x. */
  readonly out: Tensor<WideDType>;
}

/** The results of `normBackward`: the gradient of x, in its shape, and of gamma and beta, [K]; `dbeta` only for LayerNorm. */
export interface NormGradients {
  /** In the shape and type of x. */
  readonly dx: Tensor<WideDType>;
  /** [K], of the type of gamma. */
  readonly dgamma: Tensor<WideDType>;
  /** [K], of the type of gamma. Absent in RMSNorm. */
  readonly dbeta?: Tensor<WideDType>;
}

/**
 * (x - mean) / sqrt(variance + eps) * gamma + beta over the last dimension K of `x`; gamma and beta are [K] of one type.
 * Computed in f32, with reductions in the fixed order of 32 lanes, and rounded once to `outDtype` (numerics.md §7.1 and choice
 * 11).
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for gamma or beta that is not [K], `ArgumentError`
 * for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function layerNorm(x: Tensor, gamma: Tensor, beta: Tensor, options: NormOptions = {}): NormResult {
  requireWide("layerNorm", "beta", beta);
  return forward("layerNorm", x, gamma, beta, options);
}

/**
 * x / sqrt(mean(x^2) + eps) * gamma over the last dimension; otherwise as `layerNorm`.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for gamma that is not [K], `ArgumentError` for an
 * option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function rmsNorm(x: Tensor, gamma: Tensor, options: NormOptions = {}): NormResult {
  return forward("rmsNorm", x, gamma, undefined, options);
}

function forward(
  op: string,
  x: Tensor,
  gamma: Tensor,
  beta: Tensor | undefined,
  options: NormOptions,
): NormResult {
  const { eps, zeroCenteredGamma } = checkOptions(op, options);
  const source = normSource(op, x, { eps, zeroCenteredGamma, gamma, beta });
  const { backend, shape, dtype } = source.x;
  return orDispose((made) => {
    const statistics = allocateStatistics(source, made);
    const out = new Tensor(backend, options.outDtype ?? dtype, shape);
    made.push(out);
    execute(backend, "norm", { ...source, ...statistics, out });
    return { out, ...statistics };
  });
}

/** The parameters of a norm. */
export interface NormParameters extends Omit<NormOptions, "outDtype"> {
  /** [K] */
  readonly gamma: Tensor;
  /** [K], of the type of gamma: makes it LayerNorm; without it, RMSNorm. */
  readonly beta?: Tensor | undefined;
}

/** `NormParameters` whose fields may be undefined. */
type NormGiven = { readonly [K in keyof NormParameters]: NormParameters[K] | undefined } & {
  readonly gamma: Tensor;
};

const checkParameters = optionsOf<NormParameters>({
  ...FORM,
  gamma: needed(requireWide),
  beta: requireWide,
});

/** What a norm reads. */
type NormSource = Pick<NormArgs, "x" | "gamma" | "beta" | "eps" | "zeroCenteredGamma">;

/** The arguments of a norm of the rows of x except its outputs. Throws as `layerNorm`. */
export function normSource(op: string, x: Tensor, norm: NormGiven): NormSource {
  const source = requireWide(op, "x", x);
  checkParameters(op, norm as NormParameters);
  const { gamma, beta, eps = 1e-5, zeroCenteredGamma = false } = norm;
  const [, columns] = asMatrix(x.shape);
  requireShape(op, "gamma", gamma, [columns]);
  if (beta) requireShape(op, "beta", beta, [columns]);
  if (beta && beta.dtype !== gamma.dtype) {
    throw new ArgumentError(`${op}: gamma is ${gamma.dtype} and beta ${beta.dtype}; give both in one type`);
  }
  requireBackendOf(op, source, gamma, beta);
  return {
    x: source,
    gamma: requireWide(op, "gamma", gamma),
    beta: beta && requireWide(op, "beta", beta),
    eps,
    zeroCenteredGamma,
  };
}

/** The statistics of a norm, uninitialised. They are added to `made`. */
export function allocateStatistics({ x, beta }: NormSource, made: Owned[]): NormStatistics {
  const [rows] = asMatrix(x.shape);
  const rstd = new Tensor(x.backend, "f32", [rows]);
  made.push(rstd);
  if (!beta) return { rstd };
  const mean = new Tensor(x.backend, "f32", [rows]);
  made.push(mean);
  return { rstd, mean };
}

/** The inputs of `normBackward`: the gradient of the norm's result, and the inputs and statistics of the forward pass. */
export interface NormBackwardInputs extends NormStatistics {
  /** The gradient of the norm's result, in its shape. */
  readonly grad: Tensor;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor;
  /** The gamma of the forward pass, [K]. */
  readonly gamma: Tensor;
  /** The option of the forward pass. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
}

const checkBackward = optionsOf<NormBackwardInputs>({
  grad: needed(requireWide),
  x: needed(requireWide),
  gamma: needed(requireWide),
  mean: requireF32,
  rstd: needed(requireF32),
  zeroCenteredGamma: boolean,
});

/**
 * The gradients of x, in the type of `grad`, and of gamma and, for LayerNorm, beta, in the type of gamma; numerics.md §7.1. The
 * gradient is LayerNorm's if `mean` is given.
 *
 * @throws `DTypeError` for a type that it does not take, `ShapeError` for tensors that do not fit x, `ArgumentError` for an
 * option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function normBackward(inputs: NormBackwardInputs): NormGradients {
  checkBackward("normBackward", inputs);
  const { mean, rstd, zeroCenteredGamma = false } = inputs;
  const grad = requireWide("normBackward", "grad", inputs.grad);
  const x = requireWide("normBackward", "x", inputs.x);
  const gamma = requireWide("normBackward", "gamma", inputs.gamma);
  const [rows, columns] = asMatrix(x.shape);
  requireShape("normBackward", "grad", grad, x.shape);
  requireShape("normBackward", "gamma", gamma, [columns]);
  requireShape("normBackward", "rstd", rstd, [rows]);
  if (mean) requireShape("normBackward", "mean", mean, [rows]);
  using scope = new Scope();
  const backend = commonBackend("normBackward", grad, x, gamma, rstd, mean);
  const dx = new Tensor(backend, grad.dtype, x.shape);
  const dgamma = new Tensor(backend, gamma.dtype, [columns]);
  const dbeta = mean && new Tensor(backend, gamma.dtype, [columns]);
  execute(backend, "normBackward", { grad, x, gamma, zeroCenteredGamma, mean, rstd, dx, dgamma, dbeta });
  for (const made of [dx, dgamma, dbeta]) if (made) scope.keep(made);
  return dbeta ? { dx, dgamma, dbeta } : { dx, dgamma };
}

/**
 * The column sums [K] of `x` [..., K]: rows in chunks of 32, chunks ascending, in f32, rounded once. Without rows, the sums are
 * 0; a NaN in a column makes its sum NaN.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ArgumentError` for a result type that is not wide,
 * `DisposedError` for a tensor that was disposed of.
 */
export function columnSum(x: Tensor, outDtype?: WideDType): Tensor<WideDType> {
  const source = requireWide("columnSum", "x", x);
  if (outDtype !== undefined) wideDType("columnSum", "outDtype", outDtype);
  using scope = new Scope();
  const out = new Tensor(x.backend, outDtype ?? source.dtype, [asMatrix(x.shape)[1]]);
  execute(x.backend, "columnSum", { x: source, out });
  return scope.keep(out);
}
