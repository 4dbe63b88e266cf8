/** Activation functions, their gated forms, and the derivatives of both. */
import type { ActivationName, GatedArgs, SwigluClamp } from "../../backends/ops.js";
import { ArgumentError, ShapeError } from "../../errors.js";
import { ACTIVATION } from "../../formats/contract.gen.js";
import { atLeastZero, finite, needed, nested, type OptionTable, oneOf, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** TransformerEngine's clamped swiglu. */
export const DEFAULT_CLAMP: SwigluClamp = { limit: 7, alpha: 1.702, offset: 1 };

/** Options of `activation`. */
export interface ActivationOptions {
  /** The activation function. */
  readonly kind: ActivationName;
  /** Default: the input's type. */
  readonly outDtype?: WideDType | undefined;
}

/** Options of `gated`. */
export interface GatedOptions extends ActivationOptions {
  /** The clamped form; only with kind `silu`. Missing fields default to those of `DEFAULT_CLAMP`. */
  readonly clamp?: Partial<SwigluClamp> | undefined;
}

const ACTIVATION_OPTIONS: OptionTable<ActivationOptions> = {
  kind: needed(oneOf(Object.keys(ACTIVATION))),
  outDtype: wideDType,
};

/** The option rows of gated forms and of their quantization. */
export const GATED_OPTIONS: OptionTable<GatedOptions> = {
  ...ACTIVATION_OPTIONS,
  clamp: nested(optionsOf<Partial<SwigluClamp>>({ limit: atLeastZero, alpha: finite, offset: finite })),
};

const checkActivation = optionsOf(ACTIVATION_OPTIONS);
const checkGated = optionsOf(GATED_OPTIONS);

/**
 * act(x), element by element: computed from the f32 value, rounded once to `outDtype`. `gelu` is the tanh form;
 * `relu` takes NaN to 0 (formulas: numerics.md §7.2; largest errors: docs/accuracy.md).
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ArgumentError` for an option outside its domain or tensors on
 * different backends, `DisposedError` for a tensor that was disposed of.
 */
export function activation(x: Tensor, options: ActivationOptions): Tensor<WideDType> {
  const source = requireWide("activation", "x", x);
  checkActivation("activation", options);
  using scope = new Scope();
  const out = new Tensor(x.backend, options.outDtype ?? source.dtype, x.shape);
  execute(x.backend, "activation", { x: source, kind: options.kind, out });
  return scope.keep(out);
}

/**
 * grad * act'(x), element by element, by default in the type of `grad`.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a gradient of another shape than x,
 * `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was
 * disposed of.
 */
export function activationBackward(grad: Tensor, x: Tensor, options: ActivationOptions): Tensor<WideDType> {
  const gradOutput = requireWide("activationBackward", "grad", grad);
  const source = requireWide("activationBackward", "x", x);
  checkActivation("activationBackward", options);
  requireShape("activationBackward", "grad", grad, x.shape);
  using scope = new Scope();
  const out = new Tensor(
    commonBackend("activationBackward", grad, x),
    options.outDtype ?? gradOutput.dtype,
    x.shape,
  );
  execute(out.backend, "activationBackward", { grad: gradOutput, x: source, kind: options.kind, out });
  return scope.keep(out);
}

/**
 * act(a) * g for x [..., 2n] whose first half is a and second half g: glu (`sigmoid`), geglu (`gelu`), swiglu
 * (`silu`), reglu, qgeglu, sreglu. The product is one f32 multiplication, the result [..., n].
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a last dimension that is odd, `ArgumentError`
 * for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function gated(x: Tensor, options: GatedOptions): Tensor<WideDType> {
  const source = requireWide("gated", "x", x);
  const form = formOf("gated", checkGated("gated", options));
  const half = halfOf("gated", x);
  using scope = new Scope();
  const out = new Tensor(x.backend, options.outDtype ?? source.dtype, [...x.shape.slice(0, -1), half]);
  execute(x.backend, "gated", { x: source, ...form, out });
  return scope.keep(out);
}

/**
 * The gradients of a and g, [..., 2n]: dA = (act'(a) * grad) * g, dG = grad * act(a), each product rounded.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for a gradient that is not half of x,
 * `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was
 * disposed of.
 */
export function gatedBackward(grad: Tensor, x: Tensor, options: GatedOptions): Tensor<WideDType> {
  const gradOutput = requireWide("gatedBackward", "grad", grad);
  const source = requireWide("gatedBackward", "x", x);
  const form = formOf("gatedBackward", checkGated("gatedBackward", options));
  requireShape("gatedBackward", "grad", grad, [...x.shape.slice(0, -1), halfOf("gatedBackward", x)]);
  using scope = new Scope();
  const out = new Tensor(
    commonBackend("gatedBackward", grad, x),
    options.outDtype ?? gradOutput.dtype,
    x.shape,
  );
  execute(out.backend, "gatedBackward", { grad: gradOutput, x: source, ...form, out });
  return scope.keep(out);
}

/** The kind, and the complete clamp if given. Throws `ArgumentError` for a form that does not exist. */
export function formOf(op: string, { kind, clamp }: GatedOptions): Pick<GatedArgs, "kind" | "clamp"> {
  if (clamp && kind !== "silu")
    throw new ArgumentError(`${op}: only silu has a clamped form; kind is ${kind}`);
  const { limit, alpha, offset } = { ...DEFAULT_CLAMP, ...clamp };
  return { kind, clamp: clamp && { limit, alpha, offset } };
}

/** The columns of each half of `x`. Throws `ShapeError` if they are odd. */
export function halfOf(op: string, x: Tensor): number {
  const columns = x.shape.at(-1) ?? 1;
  if (columns % 2 === 0) return columns / 2;
  throw new ShapeError(
    `${op}: the last dimension ${columns} is odd; it holds two halves, the activation's and the gate's`,
  );
}
