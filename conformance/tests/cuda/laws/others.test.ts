/** Operations that no other file of this folder names, on a GPU: sums, norms of gradients, updates, and what is new. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("others");
