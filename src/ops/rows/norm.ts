/** LayerNorm and RMSNorm, forward and backward, and column sums, which are the gradients of biases. */
import type { NormArgs } from "../../backends/ops.js";
import { ArgumentError } from "../../errors.js";
import { atLeastZero, boolean, needed, optionsOf } from "../../options.js";
import { requireF32, requireWide, wideDType } from "../../tensor/require.js";
import { type Owned, orDispose, Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, execute, requireBackendOf, requireShape } from "../execute.js";

/** Options of `layerNorm` and `rmsNorm`. All fields are optional. */
export interface NormOptions {
  /** A constant added to the variance (LayerNorm) or to the mean square (RMSNorm). Default 1e-5. */
  readonly eps?: number | undefined;
  /** Whether the tensor `gamma` holds gamma - 1. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

const FORM = { eps: atLeastZero, zeroCenteredGamma: boolean };
const checkOptions = optionsOf<NormOptions>({ ...FORM, outDtype: wideDType });

/** The statistics that the backward pass of a norm needs, f32 with one element per row. */
export interface NormStatistics {
  /** The mean of each row, [rows]. Absent for RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** 1 / sqrt(variance + eps) of each row, [rows]; for RMSNorm, the mean square takes the place of the variance. */
  readonly rstd: Tensor<"f32">;
}

/** The result of a norm, and the statistics that its backward pass needs. */
export interface NormResult extends NormStatistics {
  /** The normalized tensor, in the shape of x. */
  readonly out: Tensor<WideDType>;
}

/** The results of `normBackward`: the gradients of x, gamma and, for LayerNorm, beta. */
export interface NormGradients {
  /** The gradient of x, in the shape of x and the dtype of `grad`. */
  readonly dx: Tensor<WideDType>;
  /** The gradient of gamma, [K], in the dtype of gamma. */
  readonly dgamma: Tensor<WideDType>;
  /** The gradient of beta, [K], in the dtype of gamma. Absent for RMSNorm. */
  readonly dbeta?: Tensor<WideDType>;
}

/**
 * Computes (x - mean) / sqrt(variance + eps) * gamma + beta over the last dimension K of `x`. gamma and beta are [K] and have
 * the same dtype. The computation is in f32, with sums in the fixed order of 32 lanes, and is rounded once to `outDtype`
 * (numerics.md §7.1 and choice 11).
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a gamma or beta that is not [K],
 * `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function layerNorm(x: Tensor, gamma: Tensor, beta: Tensor, options: NormOptions = {}): NormResult {
  requireWide("layerNorm", "beta", beta);
  return forward("layerNorm", x, gamma, beta, options);
}

/**
 * Computes x / sqrt(mean(x^2) + eps) * gamma over the last dimension K of `x`. Everything else is as in `layerNorm`.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a gamma that is not [K], `ArgumentError` for
 * an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
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
  const ownOptions = checkOptions(op, options);
  const { eps, zeroCenteredGamma } = ownOptions;
  const source = normSource(op, x, { eps, zeroCenteredGamma, gamma, beta });
  const { backend, shape, dtype } = source.x;
  return orDispose((allocated) => {
    const statistics = allocateStatistics(source, allocated);
    const out = new Tensor(backend, ownOptions.outDtype ?? dtype, shape);
    allocated.push(out);
    execute(backend, "norm", { ...source, ...statistics, out });
    return { out, ...statistics };
  });
}

/** The parameters and constants of a norm. */
export interface NormParameters extends Omit<NormOptions, "outDtype"> {
  /** The factor of each column, [K]. */
  readonly gamma: Tensor;
  /** The addend of each column, [K], in the dtype of gamma. With beta the norm is LayerNorm, without it RMSNorm. */
  readonly beta?: Tensor | undefined;
}

/** `NormParameters` with fields that may be undefined. */
type NormGiven = { readonly [K in keyof NormParameters]: NormParameters[K] | undefined } & {
  readonly gamma: Tensor;
};

const checkParameters = optionsOf<NormParameters>(
  {
    ...FORM,
    gamma: needed(requireWide),
    beta: requireWide,
  },
  "norm",
);

/** The inputs of a norm and its constants. */
type NormSource = Pick<NormArgs, "x" | "gamma" | "beta" | "eps" | "zeroCenteredGamma">;

/** @shared Returns the arguments of a norm of the rows of x, except its outputs. Throws as `layerNorm` does. */
export function normSource(op: string, x: Tensor, norm: NormGiven): NormSource {
  const source = requireWide(op, "x", x);
  const ownNorm = checkParameters(op, norm as NormParameters);
  const { gamma, beta, eps = 1e-5, zeroCenteredGamma = false } = ownNorm;
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

/** @shared Allocates uninitialized statistics of a norm, and adds them to `allocated`. */
export function allocateStatistics({ x, beta }: NormSource, allocated: Owned[]): NormStatistics {
  const [rows] = asMatrix(x.shape);
  const rstd = new Tensor(x.backend, "f32", [rows]);
  allocated.push(rstd);
  if (!beta) return { rstd };
  const mean = new Tensor(x.backend, "f32", [rows]);
  allocated.push(mean);
  return { rstd, mean };
}

/** The inputs of `normBackward`: the gradient of the norm's result, and the inputs and statistics of the forward pass. */
export interface NormBackwardInputs extends NormStatistics {
  /** The gradient of the norm's result, in the shape of x. */
  readonly grad: Tensor;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor;
  /** The gamma of the forward pass, [K]. */
  readonly gamma: Tensor;
  /** The option `zeroCenteredGamma` of the forward pass. Default false. */
  readonly zeroCenteredGamma?: boolean | undefined;
}

const checkBackward = optionsOf<NormBackwardInputs>(
  {
    grad: needed(requireWide),
    x: needed(requireWide),
    gamma: needed(requireWide),
    mean: requireF32,
    rstd: needed(requireF32),
    zeroCenteredGamma: boolean,
  },
  "inputs",
);

/**
 * Computes the gradients of x, of gamma and, for LayerNorm, of beta (numerics.md §7.1). The norm is LayerNorm if `mean` is
 * given, else RMSNorm. The gradient of x has the dtype of `grad`; the others have the dtype of gamma.
 *
 * @throws `DTypeError` for an input of an unsupported dtype, `ShapeError` for an input whose shape does not match x,
 * `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function normBackward(inputs: NormBackwardInputs): NormGradients {
  const ownInputs = checkBackward("normBackward", inputs);
  const { mean, rstd, zeroCenteredGamma = false } = ownInputs;
  const grad = requireWide("normBackward", "grad", ownInputs.grad);
  const x = requireWide("normBackward", "x", ownInputs.x);
  const gamma = requireWide("normBackward", "gamma", ownInputs.gamma);
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
  for (const tensor of [dx, dgamma, dbeta]) if (tensor) scope.keep(tensor);
  return dbeta ? { dx, dgamma, dbeta } : { dx, dgamma };
}

/**
 * Computes the column sums [K] of `x` [..., K] in f32. Each chunk of 32 rows is summed, and the sums of the chunks are added in
 * ascending order. The result is rounded once to `outDtype`. Without rows, the sums are 0. A NaN in a column makes its sum NaN.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an `outDtype` other than these,
 * `DisposedError` for a disposed tensor.
 */
export function columnSum(x: Tensor, outDtype?: WideDType): Tensor<WideDType> {
  const source = requireWide("columnSum", "x", x);
  if (outDtype !== undefined) wideDType("columnSum", "outDtype", outDtype);
  const out = new Tensor(x.backend, outDtype ?? source.dtype, [asMatrix(x.shape)[1]]);
  return compute("columnSum", { x: source, out });
}
