export {
  type AutocastOptions,
  autocast,
  autocastScope,
} from "./autocast/autocast.js";
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
  RoundingName,
} from "./backends/ops.js";
export * from "./errors.js";
export { BLOCK_FORMATS, type BlockFormat, type BlockFormatName, type Tile } from "./formats/block.js";
export { DATAPATHS, type DatapathFamily, type DatapathName, type DatapathRow } from "./formats/datapath.js";
export { derive, type FormatFacts, factsOf, formatWord, resolveFormat } from "./formats/derive.js";
export type { GemmAlgorithm, ReductionScheme } from "./formats/gemm-algorithm.js";
export { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout } from "./formats/scalar.js";
export * as functional from "./functional/index.js";
export { Embedding, type EmbeddingModuleOptions } from "./modules/embedding.js";
export { LayerNormLinear, type LayerNormLinearOptions } from "./modules/layer-norm-linear.js";
export { LayerNormMLP, type LayerNormMLPOptions, type MLPActivation } from "./modules/layer-norm-mlp.js";
export { Linear } from "./modules/linear.js";
export type { LinearCall, LinearOptions } from "./modules/linear-parts.js";
export { defaultRandom, Module, type ModuleOptions, manualSeed } from "./modules/module.js";
export { LayerNorm, type Normalization, type NormModuleOptions, RMSNorm } from "./modules/norm.js";
export { constantInit, type InitMethod, normalInit, Parameter } from "./modules/parameter.js";
export { type QuantizedModelInitOptions, quantizedModelInit } from "./modules/quantized-init.js";
export { recompute } from "./modules/recompute.js";
export { type Layer, Sequential } from "./modules/sequential.js";
export {
  decode,
  type EncodeOptions,
  encode,
  type FormatLike,
  OVERFLOWS,
  ROUNDINGS,
} from "./ops/cast/cast.js";
export { SWEEP_CHUNKS, type SweepOptions, sweepChunk } from "./ops/cast/sweep.js";
export { empty, tensor, zeros } from "./ops/create.js";
export {
  type ActivationOptions,
  activation,
  activationBackward,
  DEFAULT_CLAMP,
  type GatedOptions,
  gated,
  gatedBackward,
} from "./ops/elementwise/activation.js";
export * from "./ops/elementwise/add.js";
export * from "./ops/elementwise/scaled.js";
export { type BatchedGemmOptions, type BatchedGemmResult, batchedGemm } from "./ops/gemm/batched.js";
export { type GemmLayout, type GemmOptions, type GemmResult, gemm } from "./ops/gemm/gemm.js";
export type { GemmInput } from "./ops/gemm/operand.js";
export type { GemmPlan } from "./ops/gemm/plan.js";
export { relayoutScales, swapAxes, transpose } from "./ops/layout/layout.js";
export type { ActivationQuantizeOptions } from "./ops/quantize/activation-quantize.js";
export type { QuantizedBiasGrad } from "./ops/quantize/bias-grad-quantize.js";
export { dequantize } from "./ops/quantize/dequantize.js";
export { hadamard, RHT_SIGNS } from "./ops/quantize/hadamard.js";
export type { NormQuantizeResult } from "./ops/quantize/norm-quantize.js";
export { type EmbeddingOptions, embedding, embeddingBackward } from "./ops/rows/embedding.js";
export * from "./ops/rows/loss.js";
export {
  columnSum,
  layerNorm,
  type NormBackwardInputs,
  type NormGradients,
  type NormOptions,
  type NormParameters,
  type NormResult,
  type NormStatistics,
  normBackward,
  rmsNorm,
} from "./ops/rows/norm.js";
export * from "./ops/rows/softmax.js";
export { AMAX_ALGORITHMS, type UpdateScalesInputs, updateScales } from "./ops/update/delayed-scaling.js";
export { type GradNorm, type GradNormOptions, gradNorm } from "./ops/update/grad-norm.js";
export {
  type AdamWInputs,
  type AdamWStepOptions,
  adamw,
  type SGDInputs,
  type SGDStepOptions,
  sgd,
} from "./ops/update/optimizer.js";
export { AdamW, type AdamWOptions } from "./optimizers/adamw.js";
export { clipGradNorm, type Optimized, Optimizer, type StepOptions } from "./optimizers/optimizer.js";
export { SGD, type SGDOptions } from "./optimizers/sgd.js";
export * from "./quantizers/float8.js";
export * from "./quantizers/float8-block.js";
export * from "./quantizers/mx.js";
export * from "./quantizers/nvfp4.js";
export { Quantizer, type QuantizerOptions, RandomState } from "./quantizers/quantizer.js";
export { normal, permutation, type RandomSource, randomWords } from "./random.js";
export * from "./recipes/block-scaled.js";
export * from "./recipes/custom.js";
export * from "./recipes/per-tensor.js";
export { Recipe, type RecipeOptions, StandardRecipe } from "./recipes/recipe.js";
export { checkRecipeSupport, getDefaultRecipe, type RecipeSupport } from "./recipes/support.js";
export * from "./recipes/table.js";
export { gradEnabled, noGrad } from "./tape/grad-mode.js";
export type { AmaxReductionGroup } from "./tape/scale-updates.js";
export type { Gradient, Value } from "./tape/value.js";
export { Variable, type VariableLike } from "./tape/variable.js";
export {
  type Direction,
  type FourOverSix,
  type QuantizeCall,
  type QuantizedCopy,
  QuantizedTensor,
  type QuantizedTensorFields,
  type QuantizerOps,
  type QuantizeSpec,
  type ScaleLayout,
  type Usage,
} from "./tensor/quantized.js";
export { Scope } from "./tensor/scope.js";
export type { DType, Shape, WideDType } from "./tensor/shape.js";
export { Tensor, type TensorData } from "./tensor/tensor.js";
