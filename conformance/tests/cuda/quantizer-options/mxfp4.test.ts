/** Options of mxfp4 on a GPU. */
import { describeOptionsOnGpu } from "../../harness/gpu/quantizer-options.js";

describeOptionsOnGpu("mxfp4");
