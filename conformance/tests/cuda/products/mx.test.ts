/** Products of realistic sizes on a GPU: MX operands. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts(["mxfp8", "mxfp6"]);
