/** Functions of rows and columns, on a GPU. */
import { describeLawsOnGpu } from "../harness/gpu-laws.js";

describeLawsOnGpu("norms and softmax on a GPU", [
  "norm",
  "normBackward",
  "columnSum",
  "softmax",
  "softmaxBackward",
]);
