export type { Agreement, Backend, MemoryUse, Support } from "./backends/backend.js";
export { type BackendName, type MissingBackend, missingBackends, openBackend, type OpenOptions } from "./backends/open.js";
export type { ActivationName, OpArgs, OpName, OverflowName, RandomSource, RoundingName } from "./backends/ops.js";
export * from "./errors.js";
export { BLOCK_FORMATS, type BlockFormat, type BlockFormatName, type Tile } from "./formats/block.js";
export { DATAPATHS, type DatapathFamily, type DatapathName, type DatapathRow } from "./formats/datapath.js";
export { derive, factsOf, type FormatFacts, formatWord, resolveFormat } from "./formats/derive.js";
export { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "./formats/scalar.js";
export {
  activation,
  activationBackward,
  type ActivationOptions,
  DEFAULT_CLAMP,
  gated,
  gatedBackward,
  type GatedOptions,
} from "./ops/activation.js";
export { decode, encode, type EncodeOptions, type FormatLike, OVERFLOWS, ROUNDINGS } from "./ops/cast.js";
export { empty, tensor, zeros } from "./ops/create.js";
export { dequantize } from "./ops/dequantize.js";
export { gemm, type GemmLayout, type GemmOptions, type GemmPlan, type GemmResult } from "./ops/gemm.js";
export type { GemmInput } from "./ops/gemm-operand.js";
export { hadamard, RHT_SIGNS } from "./ops/hadamard.js";
export { relayoutScales, transpose } from "./ops/layout.js";
export * from "./ops/loss.js";
export * from "./ops/norm.js";
export { SWEEP_CHUNKS, sweepChunk, type SweepOptions } from "./ops/sweep.js";
export * from "./quantizers/float8.js";
export * from "./quantizers/float8-block.js";
export * from "./quantizers/mx.js";
export * from "./quantizers/nvfp4.js";
export { Quantizer, type QuantizeCall, type QuantizerOptions, RandomState } from "./quantizers/quantizer.js";
export * from "./tensor/quantized.js";
export { Scope } from "./tensor/scope.js";
export type { DType, Shape, WideDType } from "./tensor/shape.js";
export { Tensor, type TensorData } from "./tensor/tensor.js";
