/** An activation, or its derivative, and the quantization of what it gives, as one operation. */

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

/** Which activation a quantizer's `activationQuantize` computes before it quantizes. */
export interface ActivationQuantizeOptions extends Omit<GatedOptions, "outDtype"> {
  /** The last dimension of x holds two halves, as in `gated`. Default false. */
  readonly gated?: boolean | undefined;
  /** The gradient of the result: then that of x is quantized, as `activationBackward` and `gatedBackward` have it. */
  readonly grad?: Tensor | undefined;
}

const { outDtype: _, ...FORM } = GATED_OPTIONS;
const checkOptions = optionsOf<ActivationQuantizeOptions>({ ...FORM, gated: boolean, grad: requireWide });

/** What is quantized: its shape, and the type it would have as a tensor. Throws as `activationQuantize`. */
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
 * Quantizes act(x), its gated form, or under `grad` the gradient of x, into all copies of `target`. What is rounded
 * before the codes is the quantizer's choice (numerics.md §7.3). Throws as the activation and `quantizeInto` do.
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
