/** Products of realistic sizes on a GPU: bf16 operands and codes. */
import { describeProducts } from "../../harness/gpu/products.js";

describeProducts([
  "bf16 by e4m3",
  "bf16 by rows of e4m3",
  "bf16 by 128x128",
  "bf16 by mxfp8",
  "bf16 by mxfp4",
  "bf16 by nvfp4",
  "nvfp4 by bf16",
]);
