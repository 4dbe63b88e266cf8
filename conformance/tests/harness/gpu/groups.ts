import { OPERATION_NAMES, type OperationName } from "../../../operations/operations.js";

/** Operations whose laws take long and run in separate files. */
const LONG = {
  casts: ["encode", "decode", "amax", "transpose", "swapAxes"],
  quantizers: ["quantize", "hadamard"],
  fused: ["activationQuantize", "biasGradQuantize"],
  normed: ["normQuantize"],
  scales: ["dequantize", "relayout"],
  values: ["activation", "activationBackward", "gated", "gatedBackward"],
  rows: ["norm", "normBackward", "columnSum", "softmax", "softmaxBackward"],
  losses: [
    ...(["crossEntropy", "crossEntropyBackward", "lossMaximum", "lossSums", "lossOfSums"] as const),
    ...(["mse", "mseBackward", "embedding", "embeddingBackward"] as const),
  ],
  gemm: ["gemm", "batchedGemm"],
} as const satisfies Record<string, readonly OperationName[]>;

const long: readonly OperationName[] = Object.values(LONG).flat();

/** The operations whose laws each file conformance/tests/cuda/laws/*.test.ts tests. The files run in parallel. */
export const GPU_GROUPS = {
  ...LONG,
  /** All operations that no other group names. */
  others: OPERATION_NAMES.filter((name) => !long.includes(name)),
};
