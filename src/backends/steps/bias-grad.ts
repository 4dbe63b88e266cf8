/** Column sums followed by a quantization: the definition that a fused kernel must match. */
import type { BiasGradQuantizeArgs } from "../ops.js";

/** Runs `biasGradQuantize` by other operations of the backend of x. */
export function runBiasGradSteps({ biasGrad, ...quantization }: BiasGradQuantizeArgs): void {
  const { x } = quantization;
  x.backend.run("columnSum", { x, out: biasGrad });
  x.backend.run("quantize", quantization);
}
