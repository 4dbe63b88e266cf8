/** Laws of elementwise operations on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("values");
