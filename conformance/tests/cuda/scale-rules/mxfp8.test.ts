/** Every scale rule and element scaling of mxfp8 on a GPU. */
import { describeScaleRulesOnGpu } from "../../harness/gpu/scale-rules.js";

describeScaleRulesOnGpu("mxfp8");
