/** Column sums followed by a quantization, as separate operations. This defines the result of the fused operation. */

import type { BiasGradQuantizeArgs } from "../ops.js";
import { runOn } from "../run.js";

/** Runs `biasGradQuantize` as separate operations of the backend of x. */
export function runBiasGradSteps({ biasGrad, ...quantization }: BiasGradQuantizeArgs): void {
  const { x } = quantization;
  runOn(x.backend, "columnSum", { x, out: biasGrad });
  runOn(x.backend, "quantize", quantization);
}
