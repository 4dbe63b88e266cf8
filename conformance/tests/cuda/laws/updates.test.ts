/** Sums, the norm of gradients, and updates of scales and parameters, on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("updates");
