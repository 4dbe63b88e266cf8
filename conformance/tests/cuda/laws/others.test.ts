/**
 * Laws of all operations that no other file of this folder names, on a GPU: sums, gradient norms, updates, and new
 * operations.
 */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("others");
