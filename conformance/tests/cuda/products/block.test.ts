/** Products of realistic sizes on a GPU: 8-bit operands with block scales of 128. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts(["1x128 by 128x128", "1x128 by 1x128", "128x128 by 1x128"]);
