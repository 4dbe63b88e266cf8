/** Functions of values and of rows, on a GPU. */
import { describeLawsOnGpu } from "../harness/gpu-laws.js";

describeLawsOnGpu("activations, norms and softmax on a GPU", [
  "activation",
  "activationBackward",
  "gated",
  "gatedBackward",
  "norm",
  "normBackward",
  "columnSum",
  "softmax",
  "softmaxBackward",
  "add",
  "scaled",
]);
