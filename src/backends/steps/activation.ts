/** An activation followed by a quantization, as separate operations. This defines the result of the fused operation. */

import { Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import type { ActivationQuantizeArgs } from "../ops.js";
import { runOn } from "../run.js";
import { quantizeActivated } from "./quantize.js";

/** Returns the rows and columns of the quantized tensor: the activation's result or, with `grad`, the gradient of x. */
function resultSize({ x, gated, grad }: ActivationQuantizeArgs): readonly [number, number] {
  const [rows, columns] = asMatrix(x.shape);
  return [rows, gated && !grad ? columns / 2 : columns];
}

/** Runs `activationQuantize` as separate operations of the backend of x. */
export function runActivationSteps(args: ActivationQuantizeArgs): void {
  const { kind, gated, clamp, grad, ...quantization } = args;
  const { x } = quantization;
  const { backend } = x;
  using _scope = new Scope();
  quantizeActivated(quantization, (grad ?? x).dtype, (type: WideDType) => {
    const out = new Tensor(backend, type, resultSize(args));
    if (gated && grad) runOn(backend, "gatedBackward", { x, kind, clamp, grad, out });
    else if (gated) runOn(backend, "gated", { x, kind, clamp, out });
    else if (grad) runOn(backend, "activationBackward", { x, kind, grad, out });
    else runOn(backend, "activation", { x, kind, out });
    return out;
  });
}
