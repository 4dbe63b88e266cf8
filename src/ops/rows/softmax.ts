/** Softmax over the last dimension, with the scale and causal mask of attention. */
import { boolean, finite, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** Options of `softmax` and `softmaxBackward`; every field may be left out. */
export interface SoftmaxOptions {
  /** Whether to mask element j of row i of each matrix [R, C] where j > i + (C - R). Default false. */
  readonly causal?: boolean | undefined;
  /** Multiplies x; finite, rounded to f32. Default 1. */
  readonly scale?: number | undefined;
  /** Default: the type of x, or of `grad`. */
  readonly outDtype?: WideDType | undefined;
}

const checkOptions = optionsOf<SoftmaxOptions>({ causal: boolean, scale: finite, outDtype: wideDType });

/**
 * e^(z - max(z)) / sum(e^(z - max(z))) of z = scale * x, over the last dimension of `x` [..., R, C], in f32, rounded once to
 * `outDtype`. Masked elements are not read and have probability 0; a fully masked row is zeros. If the unmasked elements of a
 * row include NaN or +infinity, or are all -infinity, they all become NaN. Formula and order: numerics.md §7.9.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ArgumentError` for an option outside its domain or tensors on
 * different backends, `DisposedError` for a tensor that was disposed of.
 */
export function softmax(x: Tensor, options: SoftmaxOptions = {}): Tensor<WideDType> {
  const source = requireWide("softmax", "x", x);
  const rule = withDefaults("softmax", options);
  using scope = new Scope();
  const out = new Tensor(x.backend, options.outDtype ?? source.dtype, x.shape);
  execute(x.backend, "softmax", { x: source, ...rule, out });
  return scope.keep(out);
}

/**
 * The gradient of x, scale * (y * (grad - sum(y * grad))), from y = `softmax(x)`, the gradient of y, and the same options.
 * Masked elements are not read in either, and have gradient 0.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for tensors of two shapes, `ArgumentError` for an
 * option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
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
