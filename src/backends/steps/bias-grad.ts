/** Column sums followed by a quantization, as separate operations. This defines the result of the fused operation. */
import type { BiasGradQuantizeArgs } from "../ops.js";

/** Runs `biasGradQuantize` as separate operations of the backend of x. */
export function runBiasGradSteps({ biasGrad, ...quantization }: BiasGradQuantizeArgs): void {
  const { x } = quantization;
  x.backend.run("columnSum", { x, out: biasGrad });
  x.backend.run("quantize", quantization);
}
