/** Products of realistic sizes on a GPU: 4-bit operands. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts(["mxfp4", "nvfp4"]);
