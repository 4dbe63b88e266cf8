/** The fused operation of an activation, or its gradient, and the quantization of the result. */

import { ArgumentError, ShapeError } from "../../errors.js";
import { boolean, optionsOf } from "../../options.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide } from "../../tensor/require.js";
import { type Shape, sameShape, type WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { formOf, GATED_OPTIONS, type GatedOptions, halfOf } from "../elementwise/activation.js";
import { commonBackend, execute, requireShape } from "../execute.js";
import { type QuantizeInputs, quantization } from "./quantize.js";

const OP = "activationQuantize";

/** Options of `Quantizer.activationQuantize`: the activation that is computed before the quantization. */
export interface ActivationQuantizeOptions extends Omit<GatedOptions, "outDtype"> {
  /** Whether the activation is gated: the last dimension of x then holds two halves, as in `gated`. Default false. */
  readonly gated?: boolean | undefined;
  /**
   * The gradient of the activation's result. If given, the gradient of x is computed and quantized instead, as by
   * `activationBackward` or `gatedBackward`.
   */
  readonly grad?: Tensor | undefined;
}

const { outDtype: _, ...FORM } = GATED_OPTIONS;
const checkOptions = optionsOf<ActivationQuantizeOptions>({ ...FORM, gated: boolean, grad: requireWide });

/**
 * Returns the shape of the tensor that is quantized, and the dtype that it would have without fusion. Throws as
 * `activationQuantize` does.
 */
export function activationResult(
  x: Tensor,
  options: ActivationQuantizeOptions,
): { readonly shape: Shape; readonly dtype: WideDType } {
  requireWide(OP, "x", x);
  const { gated = false, grad } = checkOptions(OP, options);
  commonBackend(OP, x, grad);
  const { clamp } = formOf(OP, options);
  if (clamp && !gated)
    throw new ArgumentError(`${OP}: the clamped form is gated; set gated, or leave out clamp`);
  const result = gated ? [...x.shape.slice(0, -1), halfOf(OP, x)] : x.shape;
  if (!grad) return { shape: result, dtype: requireWide(OP, "x", x).dtype };
  requireShape(OP, "grad", grad, result);
  return { shape: x.shape, dtype: requireWide(OP, "grad", grad).dtype };
}

/**
 * Computes act(x), its gated form or, with `grad`, the gradient of x, and quantizes it into all copies of `target`. The
 * quantizer decides whether the f32 values or rounded ones are quantized (numerics.md §7.3). Throws as the activation and
 * `quantizeInto` do.
 */
export function activationQuantize(
  x: Tensor,
  target: QuantizedTensor,
  options: ActivationQuantizeOptions,
  inputs: Omit<QuantizeInputs, "noop"> = {},
): void {
  const { gated = false } = options;
  const source = requireWide(OP, "x", x);
  const form = formOf(OP, options);
  const { shape, dtype } = activationResult(x, options);
  if (!sameShape(shape, target.shape)) {
    throw new ShapeError(`${OP}: the result is [${shape}], the target [${target.shape}]; they must be equal`);
  }
  const grad = options.grad && requireWide(OP, "grad", options.grad);
  const args = quantization(OP, [source, grad], dtype, target, inputs);
  execute(x.backend, "activationQuantize", { ...args, ...form, x: source, gated, grad });
}
