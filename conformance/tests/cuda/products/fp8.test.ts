/** Products of realistic sizes on a GPU: 8-bit operands with per-tensor scales. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts(["e4m3 by e4m3", "e5m2 by e4m3", "e4m3 by e5m2"]);
