/** Column sums and a quantization one after the other: what a kernel that does both has to agree with. */
import type { BiasGradQuantizeArgs } from "../ops.js";

/** Runs `biasGradQuantize` by other operations of the backend of x. */
export function runBiasGradSteps({ biasGrad, ...quantization }: BiasGradQuantizeArgs): void {
  const { x } = quantization;
  x.backend.run("columnSum", { x, out: biasGrad });
  x.backend.run("quantize", quantization);
}
