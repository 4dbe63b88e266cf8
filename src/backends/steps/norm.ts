/** A norm followed by a quantization, as separate operations. This defines the result of the fused operation. */

import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import type { NormQuantizeArgs } from "../ops.js";
import { runOn } from "../run.js";
import { quantizeNormed } from "./quantize.js";

/** Runs `normQuantize` as separate operations of the backend of x. */
export function runNormSteps(args: NormQuantizeArgs): void {
  const { gamma, beta, eps, zeroCenteredGamma, mean, rstd, ...quantization } = args;
  const { x } = quantization;
  using _scope = new Scope();
  quantizeNormed(quantization, x.dtype, (type) => {
    const out = new Tensor(x.backend, type, x.shape);
    runOn(x.backend, "norm", { x, gamma, beta, eps, zeroCenteredGamma, out, mean, rstd });
    return out;
  });
}
