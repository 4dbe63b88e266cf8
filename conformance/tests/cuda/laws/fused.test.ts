/** Laws of fused activation and quantization on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("fused");
