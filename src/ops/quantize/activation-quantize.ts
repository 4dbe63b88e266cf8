/** The fused operation of an activation, or its gradient, and the quantization of the result. */

import { ArgumentError } from "../../errors.js";
import { boolean, optionsOf } from "../../options.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireWide } from "../../tensor/require.js";
import { orDispose } from "../../tensor/scope.js";
import { ownShape } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { formOf, GATED_OPTIONS, type GatedOptions, halfOf } from "../elementwise/activation.js";
import { execute, requireBackendOf, requireShape } from "../execute.js";
import { type QuantizeInputs, requireInputs } from "./quantize.js";
import { allocateQuantized, type QuantizedLayout } from "./target.js";

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
 * Computes act(x), its gated form or, if `grad` is given, the gradient of x, and quantizes it into a new tensor. The quantizer
 * decides to which dtype values are rounded before they are quantized (numerics.md §7.3). Throws as the activation and `quantize`
 * do.
 *
 * @shared
 */
export function activationQuantize(
  x: Tensor,
  options: ActivationQuantizeOptions,
  layout: QuantizedLayout,
  inputs: Omit<QuantizeInputs, "noop">,
): QuantizedTensor {
  const source = requireWide(OP, "x", x);
  const ownOptions = checkOptions(OP, options);
  const { gated = false, grad: gradOption } = ownOptions;
  const grad = gradOption && requireWide(OP, "grad", gradOption);
  const { backend } = source;
  requireBackendOf(OP, source, grad);
  const form = formOf(OP, ownOptions);
  if (form.clamp && !gated)
    throw new ArgumentError(`${OP}: the clamped form is gated; set gated, or leave out clamp`);
  const result = gated ? [...x.shape.slice(0, -1), halfOf(OP, x)] : x.shape;
  if (grad) requireShape(OP, "grad", grad, result);
  const shape = grad ? x.shape : ownShape(result);
  const { dtype } = grad ?? source;
  const others = requireInputs(OP, { backend, dtype, shape }, layout, inputs);
  return orDispose((allocated) => {
    const target = allocateQuantized(backend, shape, dtype, layout, allocated);
    const { rowwise, columnwise } = target;
    execute(backend, OP, { x: source, ...others, rowwise, columnwise, ...form, gated, grad });
    return target;
  });
}
