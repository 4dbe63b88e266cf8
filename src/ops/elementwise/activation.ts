/** Activation functions, gated activations, and the gradients of both. */
import type { ActivationName, GatedArgs, SwigluClamp } from "../../backends/ops.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { ACTIVATION } from "../../formats/contract.gen.js";
import { atLeastZero, finite, needed, nested, type OptionTable, oneOf, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, execute, requireShape } from "../execute.js";

/** The default constants of the clamped swiglu, as in TransformerEngine. */
export const DEFAULT_CLAMP: SwigluClamp = { limit: 7, alpha: 1.702, offset: 1 };

/** Options of `activation`. */
export interface ActivationOptions {
  /** The activation function. */
  readonly kind: ActivationName;
  /** The dtype of the result. Default: the dtype of x or, for a gradient, of `grad`. */
  readonly outDtype?: WideDType | undefined;
}

/** Options of `gated`. */
export interface GatedOptions extends ActivationOptions {
  /**
   * Computes the clamped form, with these constants. Allowed only for the kind `silu`. Missing fields have the values of
   * `DEFAULT_CLAMP`. Default: not clamped.
   */
  readonly clamp?: Partial<SwigluClamp> | undefined;
}

const ACTIVATION_OPTIONS: OptionTable<ActivationOptions> = {
  kind: needed(oneOf(Object.keys(ACTIVATION))),
  outDtype: wideDType,
};

/** @shared The checks of the options of gated activations and of their fused quantization. */
export const GATED_OPTIONS: OptionTable<GatedOptions> = {
  ...ACTIVATION_OPTIONS,
  clamp: nested(optionsOf<Partial<SwigluClamp>>({ limit: atLeastZero, alpha: finite, offset: finite })),
};

const checkActivation = optionsOf(ACTIVATION_OPTIONS);
const checkGated = optionsOf(GATED_OPTIONS);

/**
 * Applies an activation function to each element of x. It is computed in f32 and rounded once to `outDtype`. `gelu` is the tanh
 * approximation; `relu` maps NaN to 0. Formulas: numerics.md §7.2. Maximum errors: docs/accuracy.md.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for an invalid option value, `DisposedError`
 * for a disposed tensor.
 */
export function activation(x: Tensor, options: ActivationOptions): Tensor<WideDType> {
  const source = requireWide("activation", "x", x);
  const ownOptions = checkActivation("activation", options);
  const out = new Tensor(x.backend, ownOptions.outDtype ?? source.dtype, x.shape);
  return compute("activation", { x: source, kind: ownOptions.kind, out });
}

/**
 * Computes grad * act'(x) for each element. The result has the dtype of `grad` unless `outDtype` is given.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` if `grad` does not have the shape of x,
 * `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function activationBackward(grad: Tensor, x: Tensor, options: ActivationOptions): Tensor<WideDType> {
  const gradOutput = requireWide("activationBackward", "grad", grad);
  const source = requireWide("activationBackward", "x", x);
  const ownOptions = checkActivation("activationBackward", options);
  requireShape("activationBackward", "grad", grad, x.shape);
  using scope = new Scope();
  const out = new Tensor(
    commonBackend("activationBackward", grad, x),
    ownOptions.outDtype ?? gradOutput.dtype,
    x.shape,
  );
  execute(out.backend, "activationBackward", { grad: gradOutput, x: source, kind: ownOptions.kind, out });
  return scope.keep(out);
}

/**
 * Computes act(a) * g as [..., n], where a is the first half and g the second half of the last dimension of x [..., 2n]. The
 * kinds give glu (`sigmoid`), geglu (`gelu`), swiglu (`silu`), reglu (`relu`), qgeglu (`qgelu`) and sreglu (`srelu`). The
 * product is one f32 multiplication.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for an odd last dimension, `ArgumentError` for
 * an invalid option value, `DisposedError` for a disposed tensor.
 */
export function gated(x: Tensor, options: GatedOptions): Tensor<WideDType> {
  const source = requireWide("gated", "x", x);
  const ownOptions = checkGated("gated", options);
  const form = formOf("gated", ownOptions);
  const half = halfOf("gated", x);
  const out = new Tensor(x.backend, ownOptions.outDtype ?? source.dtype, [...x.shape.slice(0, -1), half]);
  return compute("gated", { x: source, ...form, out });
}

/**
 * Computes the gradient [..., 2n] of x for `gated`: its first half is dA = (act'(a) * grad) * g, its second half dG = grad *
 * act(a). Each multiplication is rounded to f32.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` if `grad` is not [..., n], `ArgumentError` for
 * an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function gatedBackward(grad: Tensor, x: Tensor, options: GatedOptions): Tensor<WideDType> {
  const gradOutput = requireWide("gatedBackward", "grad", grad);
  const source = requireWide("gatedBackward", "x", x);
  const ownOptions = checkGated("gatedBackward", options);
  const form = formOf("gatedBackward", ownOptions);
  requireShape("gatedBackward", "grad", grad, [...x.shape.slice(0, -1), halfOf("gatedBackward", x)]);
  using scope = new Scope();
  const out = new Tensor(
    commonBackend("gatedBackward", grad, x),
    ownOptions.outDtype ?? gradOutput.dtype,
    x.shape,
  );
  execute(out.backend, "gatedBackward", { grad: gradOutput, x: source, ...form, out });
  return scope.keep(out);
}

/**
 * Returns the kind, and the constants of the clamp with defaults if a clamp is given. Throws `ArgumentError` for a clamp with
 * another kind than `silu`.
 *
 * @shared
 */
export function formOf(op: string, { kind, clamp }: GatedOptions): Pick<GatedArgs, "kind" | "clamp"> {
  if (clamp && kind !== "silu")
    throw new ArgumentError(`${op}: only silu has a clamped form; kind is ${kind}`);
  const { limit, alpha, offset } = { ...DEFAULT_CLAMP, ...clamp };
  return { kind, clamp: clamp && { limit, alpha, offset } };
}

/** @shared Returns the number of columns of each half of `x`. Throws `ShapeError` if the number of columns of `x` is odd. */
export function halfOf(op: string, x: Tensor): number {
  const columns = x.shape.at(-1) ?? 1;
  if (columns % 2 === 0) return columns / 2;
  throw new ShapeError(
    `${op}: the last dimension ${columns} is odd; it holds two halves, the activation's and the gate's`,
  );
}
