/** The fused activation and quantization on the reference: the two operations run one after the other. */
import { runActivationSteps } from "../../steps/activation.js";
import type { Lowering } from "../lowering.js";

export const activationQuantize: Lowering<"activationQuantize"> = {
  run: (_context, args) => runActivationSteps(args),
};
