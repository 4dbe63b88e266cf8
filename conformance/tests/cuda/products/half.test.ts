/** Products of realistic sizes on a GPU: 16-bit operands. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts(["bf16", "f16"]);
