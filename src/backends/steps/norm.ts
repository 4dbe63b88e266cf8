/** A norm followed by a quantization: the definition that a fused kernel must match. */
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import type { NormQuantizeArgs } from "../ops.js";
import { quantizeNormed } from "./quantize.js";

/** Runs `normQuantize` by other operations of the backend of x. */
export function runNormSteps(args: NormQuantizeArgs): void {
  const { gamma, beta, eps, zeroCenteredGamma, mean, rstd, ...quantization } = args;
  const { x } = quantization;
  using _scope = new Scope();
  quantizeNormed(quantization, x.dtype, (type) => {
    const out = new Tensor(x.backend, type, x.shape);
    x.backend.run("norm", { x, gamma, beta, eps, zeroCenteredGamma, out, mean, rstd });
    return out;
  });
}
