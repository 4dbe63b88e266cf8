/** Norms into codes on the reference: one operation after the other. */
import { runNormSteps } from "../../steps/norm.js";
import type { Lowering } from "../lowering.js";

export const normQuantize: Lowering<"normQuantize"> = {
  run: (_context, args) => runNormSteps(args),
};
