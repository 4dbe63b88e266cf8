/** The fused column sums and quantization on the reference: the two operations run one after the other. */
import { runBiasGradSteps } from "../../steps/bias-grad.js";
import type { Lowering } from "../lowering.js";

export const biasGradQuantize: Lowering<"biasGradQuantize"> = {
  run: (_context, args) => runBiasGradSteps(args),
};
