export type { Agreement, Backend, MemoryUse, Support } from "./backends/backend.js";
export {
  type BackendName,
  type MissingBackend,
  missingBackends,
  type OpenOptions,
  openBackend,
} from "./backends/open.js";
export type {
  ActivationName,
  OpArgs,
  OpName,
  OverflowName,
  RandomSource,
  RoundingName,
} from "./backends/ops.js";
export * from "./errors.js";
export { BLOCK_FORMATS, type BlockFormat, type BlockFormatName, type Tile } from "./formats/block.js";
export { DATAPATHS, type DatapathFamily, type DatapathName, type DatapathRow } from "./formats/datapath.js";
export { derive, type FormatFacts, factsOf, formatWord, resolveFormat } from "./formats/derive.js";
export type { GemmAlgorithm, ReductionScheme } from "./formats/gemm-algorithm.js";
export { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "./formats/scalar.js";
export {
  type ActivationOptions,
  activation,
  activationBackward,
  DEFAULT_CLAMP,
  type GatedOptions,
  gated,
  gatedBackward,
} from "./ops/activation.js";
export type { QuantizeActivationOptions } from "./ops/activation-quantize.js";
export { decode, type EncodeOptions, encode, type FormatLike, OVERFLOWS, ROUNDINGS } from "./ops/cast.js";
export { empty, tensor, zeros } from "./ops/create.js";
export { dequantize } from "./ops/dequantize.js";
export { type GemmLayout, type GemmOptions, type GemmResult, gemm } from "./ops/gemm.js";
export type { GemmInput } from "./ops/gemm-operand.js";
export type { GemmPlan } from "./ops/gemm-plan.js";
export { hadamard, RHT_SIGNS } from "./ops/hadamard.js";
export { relayoutScales, transpose } from "./ops/layout.js";
export * from "./ops/loss.js";
export * from "./ops/norm.js";
export {
  type AdamwInputs,
  type AdamwOptions,
  adamw,
  type SgdInputs,
  type SgdOptions,
  sgd,
} from "./ops/optimizer.js";
export { SWEEP_CHUNKS, type SweepOptions, sweepChunk } from "./ops/sweep.js";
export * from "./quantizers/float8.js";
export * from "./quantizers/float8-block.js";
export * from "./quantizers/mx.js";
export * from "./quantizers/nvfp4.js";
export { type QuantizeCall, Quantizer, type QuantizerOptions, RandomState } from "./quantizers/quantizer.js";
export * from "./tensor/quantized.js";
export { Scope } from "./tensor/scope.js";
export type { DType, Shape, WideDType } from "./tensor/shape.js";
export { Tensor, type TensorData } from "./tensor/tensor.js";
