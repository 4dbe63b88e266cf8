/** Options of the other quantizers on a GPU. */
import { describeOptionsOnGpu } from "../../harness/gpu/quantizer-options.js";

describeOptionsOnGpu("others");
