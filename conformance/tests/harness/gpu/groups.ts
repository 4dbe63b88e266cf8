import type { OperationName } from "../../../operations/operations.js";

/** Whose laws each file conformance/tests/cuda/laws/*.test.ts holds a GPU to. Files run beside each other. */
export const GPU_GROUPS = {
  casts: ["encode", "decode", "amax", "transpose", "swapAxes"],
  quantizers: ["quantize", "hadamard"],
  fused: ["activationQuantize", "biasGradQuantize"],
  normed: ["normQuantize"],
  scales: ["dequantize", "relayout"],
  values: ["activation", "activationBackward", "gated", "gatedBackward"],
  rows: ["norm", "normBackward", "columnSum", "softmax", "softmaxBackward"],
  losses: ["crossEntropy", "crossEntropyBackward", "mse", "mseBackward", "embedding", "embeddingBackward"],
  updates: ["add", "scaled", "gradNorm", "updateScales", "sgd", "adamw"],
  gemm: ["gemm", "batchedGemm"],
} as const satisfies Record<string, readonly OperationName[]>;
