/** Activations into codes on the reference: one operation after the other. */
import { runActivationSteps } from "../../steps/activation.js";
import type { Lowering } from "../lowering.js";

export const activationQuantize: Lowering<"activationQuantize"> = {
  run: (_context, args) => runActivationSteps(args),
};
