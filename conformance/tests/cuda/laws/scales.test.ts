/** Laws of dequantization and of scale layouts on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("scales");
