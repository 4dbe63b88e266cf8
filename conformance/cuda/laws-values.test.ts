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
  "softmax",
  "softmaxBackward",
  "add",
  "scaled",
  "mse",
  "mseBackward",
  "embedding",
  "embeddingBackward",
  "gradNorm",
  "updateScales",
  "sgd",
  "adamw",
]);
