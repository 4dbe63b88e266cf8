/** Functions of values, on a GPU. */
import { describeLawsOnGpu } from "../harness/gpu-laws.js";

describeLawsOnGpu("activations, norms, losses and optimizers on a GPU", [
  "activation",
  "activationBackward",
  "gated",
  "gatedBackward",
  "norm",
  "normBackward",
  "columnSum",
  "crossEntropy",
  "crossEntropyBackward",
  "sgd",
  "adamw",
]);
