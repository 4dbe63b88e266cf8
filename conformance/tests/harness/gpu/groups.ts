import { existsSync } from "node:fs";
import { join } from "node:path";
import type { BlockFormatName } from "../../../../src/formats/block.js";
import { QUANTIZERS } from "../../../arbitraries/specs.js";
import { OPERATION_NAMES, type OperationName } from "../../../operations/operations.js";
import { ROOT } from "../sources/sources.js";

/** The operations that the CUDA backend computes. Attention is among them only if its kernels exist. */
export const GPU_OPERATIONS = OPERATION_NAMES.filter(
  (name) => !name.startsWith("attention") || existsSync(join(ROOT, "kernels/attention")),
);

/** Operations whose laws take long and run in separate files. */
const SLOW_GROUPS = {
  casts: ["encode", "decode", "amax", "transpose", "swapAxes", "copySlice"],
  quantizers: ["quantize", "hadamard"],
  fused: ["activationQuantize", "biasGradQuantize"],
  normed: ["normQuantize"],
  scales: ["dequantize", "relayout"],
  values: ["activation", "activationBackward", "gated", "gatedBackward", "dropout"],
  rows: ["norm", "normBackward", "columnSum", "softmax", "softmaxBackward"],
  losses: [
    ...(["crossEntropy", "crossEntropyBackward", "lossMaximum", "lossSums", "lossOfSums"] as const),
    ...(["mse", "mseBackward", "embedding", "embeddingBackward", "gather", "gatherBackward"] as const),
    ...(["rowIdMap", "takeRows", "combineRows", "rowDots", "topk"] as const),
  ],
  gemm: ["gemm", "batchedGemm"],
} as const satisfies Record<string, readonly OperationName[]>;

const slowOperations: readonly OperationName[] = Object.values(SLOW_GROUPS).flat();

/** The operations whose laws each file conformance/tests/cuda/laws/*.test.ts tests. The files run in parallel. */
export const GPU_GROUPS = {
  ...SLOW_GROUPS,
  /** All operations outside the other groups. */
  others: GPU_OPERATIONS.filter((name) => !slowOperations.includes(name)),
};

/** Quantizers with many rules and options, whose tests run in separate files. */
const MANY_OPTIONS = {
  mxfp8: ["mxfp8"],
  mxfp6: ["mxfp6"],
  mxfp4: ["mxfp4"],
  fp8: ["fp8-current", "fp8-delayed", "fp8-block", "fp8-row"],
} as const satisfies Record<string, readonly BlockFormatName[]>;

const manyOptions: readonly BlockFormatName[] = Object.values(MANY_OPTIONS).flat();

/** The quantizers that each file of conformance/tests/cuda/scale-rules/ and of quantizer-options/ tests. */
export const QUANTIZER_GROUPS = {
  ...MANY_OPTIONS,
  /** All quantizers outside the other groups. */
  others: QUANTIZERS.filter((name) => !manyOptions.includes(name)),
};
