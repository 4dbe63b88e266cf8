/** Options of the FP8 quantizers on a GPU. */
import { describeOptionsOnGpu } from "../../harness/gpu/quantizer-options.js";

describeOptionsOnGpu("fp8");
