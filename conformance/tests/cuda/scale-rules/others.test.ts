/** Every scale rule and element scaling of the other quantizers on a GPU. */
import { describeScaleRulesOnGpu } from "../../harness/gpu/scale-rules.js";

describeScaleRulesOnGpu("others");
