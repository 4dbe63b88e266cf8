/** Gradients into codes and their column sums on the reference: one operation after the other. */
import { runBiasGradSteps } from "../../steps/bias-grad.js";
import type { Lowering } from "../lowering.js";

export const biasGradQuantize: Lowering<"biasGradQuantize"> = {
  run: (_context, args) => runBiasGradSteps(args),
};
