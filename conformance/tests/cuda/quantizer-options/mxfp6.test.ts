/** Options of mxfp6 on a GPU. */
import { describeOptionsOnGpu } from "../../harness/gpu/quantizer-options.js";

describeOptionsOnGpu("mxfp6");
