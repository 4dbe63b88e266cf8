/** Quantizers, on a GPU. */
import { describeLawsOnGpu } from "../harness/gpu-laws.js";

describeLawsOnGpu("quantizers on a GPU", ["quantize", "dequantize", "hadamard", "activationQuantize"]);
