/** The fused norm and quantization on the reference: the two operations run one after the other. */
import { runNormSteps } from "../../steps/norm.js";
import type { Lowering } from "../lowering.js";

export const normQuantize: Lowering<"normQuantize"> = {
  run: (_context, args) => runNormSteps(args),
};
