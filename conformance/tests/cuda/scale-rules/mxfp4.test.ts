/** Every scale rule and element scaling of mxfp4 on a GPU. */
import { describeScaleRulesOnGpu } from "../../harness/gpu/scale-rules.js";

describeScaleRulesOnGpu("mxfp4");
