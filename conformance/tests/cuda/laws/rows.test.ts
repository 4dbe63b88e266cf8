/** Laws of operations on rows and columns on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("rows");
