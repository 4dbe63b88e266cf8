/** Every scale rule and element scaling of the FP8 quantizers on a GPU. */
import { describeScaleRulesOnGpu } from "../../harness/gpu/scale-rules.js";

describeScaleRulesOnGpu("fp8");
