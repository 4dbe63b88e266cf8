/** Options of mxfp8 on a GPU. */
import { describeOptionsOnGpu } from "../../harness/gpu/quantizer-options.js";

describeOptionsOnGpu("mxfp8");
