/** Laws of matrix products on a GPU, with inputs aimed at edge cases. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("gemm");
