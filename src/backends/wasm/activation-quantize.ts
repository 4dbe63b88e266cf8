/** Activations into codes on the reference: one operation after the other. */
import { runSteps } from "../activation-steps.js";
import type { Lowering } from "./lowering.js";

export const activationQuantize: Lowering<"activationQuantize"> = {
  run: (_context, args) => runSteps(args),
};
