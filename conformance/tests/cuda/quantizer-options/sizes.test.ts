/** Quantizations of large matrices on a GPU. */
import { describeSizesOnGpu } from "../../harness/gpu/quantizer-options.js";

describeSizesOnGpu();
