/** Laws of quantization and of the Hadamard transform on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("quantizers");
