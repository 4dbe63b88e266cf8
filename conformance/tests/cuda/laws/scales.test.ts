/** What undoes quantizers, and where scales lie, on a GPU. */
import { describeLawsOnGpu } from "../../harness/gpu/laws.js";

describeLawsOnGpu("scales");
