/** What a training step does beside its layers, on a GPU. */
import { describeLawsOnGpu } from "../harness/gpu-laws.js";

describeLawsOnGpu("losses, lookups and updates on a GPU", [
  "add",
  "scaled",
  "crossEntropy",
  "crossEntropyBackward",
  "mse",
  "mseBackward",
  "embedding",
  "embeddingBackward",
  "gradNorm",
  "updateScales",
  "sgd",
  "adamw",
]);
