/** Softmax over the last dimension, with the scale and the causal mask of attention, and its gradient. */
import { boolean, finite, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, execute, requireShape } from "../execute.js";

/** Options of `softmax` and `softmaxBackward`. All fields are optional. */
export interface SoftmaxOptions {
  /** Whether to mask, in each matrix [R, C], the elements of row i and column j with j > i + (C - R). Default false. */
  readonly causal?: boolean | undefined;
  /** A finite factor of x, rounded to f32. Default 1. */
  readonly scale?: number | undefined;
  /** The dtype of the result. Default: the dtype of x or, for `softmaxBackward`, of `grad`. */
  readonly outDtype?: WideDType | undefined;
}

const checkOptions = optionsOf<SoftmaxOptions>({ causal: boolean, scale: finite, outDtype: wideDType });

/**
 * Computes e^(z - max(z)) / sum(e^(z - max(z))) with z = scale * x over the last dimension of `x` [..., R, C], in f32, rounded
 * once to `outDtype`. Masked elements are not read and have probability 0; a fully masked row is all 0. If the unmasked
 * elements of a row include NaN or +infinity, or are all -infinity, their results are all NaN. The exact formula and order are
 * in numerics.md §7.9.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an invalid option value, `DisposedError`
 * for a disposed tensor.
 */
export function softmax(x: Tensor, options: SoftmaxOptions = {}): Tensor<WideDType> {
  const source = requireWide("softmax", "x", x);
  const rule = withDefaults("softmax", options);
  const out = new Tensor(x.backend, options.outDtype ?? source.dtype, x.shape);
  return compute("softmax", { x: source, ...rule, out });
}

/**
 * Computes the gradient of x: scale * (y * (grad - sum(y * grad))). y is the result of `softmax`, grad is the gradient of y, and
 * the options must be the options of the forward pass. Masked elements of y and grad are not read; their gradient is 0.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for tensors of different shapes, `ArgumentError`
 * for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function softmaxBackward(grad: Tensor, y: Tensor, options: SoftmaxOptions = {}): Tensor<WideDType> {
  const gradOutput = requireWide("softmaxBackward", "grad", grad);
  const shares = requireWide("softmaxBackward", "y", y);
  requireShape("softmaxBackward", "grad", grad, y.shape);
  const rule = withDefaults("softmaxBackward", options);
  using scope = new Scope();
  const backend = commonBackend("softmaxBackward", grad, y);
  const dx = new Tensor(backend, options.outDtype ?? gradOutput.dtype, y.shape);
  execute(backend, "softmaxBackward", { grad: gradOutput, y: shares, ...rule, dx });
  return scope.keep(dx);
}

function withDefaults(op: string, options: SoftmaxOptions) {
  const { causal = false, scale = 1 } = checkOptions(op, options);
  return { causal, scale: Math.fround(scale) };
}
