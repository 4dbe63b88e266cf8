export {
  type AutocastOptions,
  autocast,
  autocastScope,
  getFp8Group,
  getFp8Recipe,
  isFirstFp8Module,
  isFp8Calibration,
  isFp8Enabled,
} from "./autocast.js";
export type { Agreement, Backend, CapturedWork, MemoryUse, Support, Timeline } from "./backends/backend.js";
export type { CudaOptions } from "./backends/cuda/backend.js";
export type { DeviceEnd, DeviceExchange, DeviceRanks, ExchangePlace, FoldArgs } from "./backends/exchange.js";
export {
  type BackendName,
  type MissingBackend,
  missingBackends,
  type OpenOptions,
  openBackend,
} from "./backends/open.js";
export type * from "./backends/ops.js";
export type { WasmOptions } from "./backends/wasm/options.js";
export type {
  OnMismatch,
  Witness,
  WitnessCount,
  WitnessDifference,
  WitnessFinding,
  WitnessOptions,
  WitnessReport,
} from "./backends/witness/options.js";
export { witnessOf } from "./backends/witness/witness.js";
export type { Transport } from "./collectives/communicator.js";
export { type Mesh, ProcessGroup } from "./collectives/group.js";
export { type LoopbackOptions, loopbackGroup } from "./collectives/loopback/loopback.js";
export type { MeshAxis, MeshCoordinates, MeshSizes } from "./collectives/mesh.js";
export type {
  AllGatherOptions,
  AllReduceOptions,
  AllToAllOptions,
  BroadcastOptions,
  GroupResultOptions,
  PlannedSum,
  ReduceScatterOptions,
  ReductionName,
} from "./collectives/options.js";
export {
  SUM_ALGORITHMS,
  type SumAlgorithm,
  type SumOrder,
  type SumPlan,
  type SumPlanOptions,
} from "./collectives/plan.js";
export { type DequantizeAsOptions, dequantizeAs } from "./dialects/dequantize.js";
export {
  type DialectCount,
  type DialectDiff,
  type DialectElement,
  type DialectError,
  type DialectExample,
  type DiffDialectsOptions,
  diffDialects,
} from "./dialects/diff.js";
export type {
  ElementOverflow,
  ElementRounding,
  ElementZero,
} from "./dialects/identify/elements.js";
export {
  type ExcludedDialect,
  type Identification,
  type IdentifiedElements,
  type IdentifiedReading,
  identifyDialect,
  type NearestReading,
  type StoredCodes,
} from "./dialects/identify/identify.js";
export type { CodePacking, ScaleArrangement, ScaleForm } from "./dialects/identify/readings.js";
export type { TensorScaleForm } from "./dialects/identify/search.js";
export type { NonFinite } from "./dialects/non-finite.js";
export {
  dequantizePacked,
  PACKED_LAYOUT_NAMES,
  PACKED_LAYOUTS,
  type PackedLayout,
  type PackedLayoutName,
} from "./dialects/packed/packed.js";
export { type QuantizerOfOptions, quantizerOf } from "./dialects/quantizer-of.js";
export {
  DIALECT_NAMES,
  DIALECTS,
  type Dialect,
  type DialectForm,
  type DialectName,
  type DialectTensor,
} from "./dialects/table.js";
export type { Undecided } from "./dialects/undecided.js";
export {
  ArgumentError,
  BackendError,
  DisposedError,
  DistributedError,
  type DistributedFailure,
  DTypeError,
  type ErrorCode,
  FileError,
  LockstepError,
  MissingPackageError,
  OutOfMemoryError,
  ShapeError,
  UnsupportedError,
} from "./errors.js";
export type { Amax, Region, TensorValues } from "./explain/blocks.js";
export type { DialectValues, ExplainedValue } from "./explain/dequantized.js";
export {
  type DifferenceExplanation,
  type DifferingStage,
  explainDifference,
} from "./explain/explain-difference.js";
export { type ExplainEncodeOptions, explainEncode } from "./explain/explain-encode.js";
export { type ExplainQuantizeOptions, explainQuantize } from "./explain/explain-quantize.js";
export type { ScaleCandidate } from "./explain/four-over-six.js";
export { type ExplainGemmOptions, explainGemm, type GemmExplanation } from "./explain/gemm.js";
export type { ExplainedFactor } from "./explain/operands.js";
export type { QuantizeExplanation } from "./explain/quantize.js";
export type { CodeValue, ExplainedRounding, RandomBits, RoundingExplanation } from "./explain/rounding.js";
export {
  type ExplainSpecialFunctionOptions,
  explainSpecialFunction,
  type SpecialFunctionExplanation,
} from "./explain/special-function.js";
export type { ExplainedStep } from "./explain/steps.js";
export type {
  ExplainedChain,
  ExplainedDotAdd,
  ExplainedProduct,
  ExplainedSplit,
  ExplainedSum,
  ExplainedTerm,
} from "./explain/sums.js";
export type { ExplainedTensorScale } from "./explain/tensor-scale.js";
export {
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockFormatName,
  type Placement,
  type QuantizerOption,
  type ScalePadding,
  type ScaleSource,
  type Tile,
  tileSize,
} from "./formats/block.js";
export {
  type BlockScaleFormat,
  DATAPATHS,
  type DatapathFamily,
  type DatapathName,
  type DatapathRow,
  type DotAdd,
  type OperandTraits,
  type PromotionName,
  type StagingName,
} from "./formats/datapath.js";
export { derive, type FormatFacts, factsOf, formatWord, resolveFormat } from "./formats/derive.js";
export {
  ELEMENT_SCALINGS,
  type ElementScaling,
  type ElementScalingBit,
  type ElementScalingName,
} from "./formats/element-scalings.js";
export type { GemmAlgorithm, ReductionScheme } from "./formats/gemm-algorithm.js";
export { SCALAR_FORMATS, type ScalarFormat, type ScalarLayout, type SpecialsName } from "./formats/scalar.js";
export {
  SCALE_RULES,
  type ScaleRule,
  type ScaleRuleName,
  type TensorScaleRole,
} from "./formats/scale-rules.js";
export {
  SPECIAL_FUNCTIONS,
  type SpecialFunctionName,
  type SpecialFunctionRow,
} from "./formats/special-functions.js";
export * as functional from "./functional/index.js";
export type { SequenceParallelOptions } from "./functional/ranks.js";
export type { CacheFormat } from "./modules/attention/coded-cache.js";
export type { InferenceParamsOptions } from "./modules/attention/inference-options.js";
export { InferenceParams } from "./modules/attention/inference-params.js";
export type { AttentionMaskType, AttentionWindow } from "./modules/attention/masks.js";
export type {
  MultiheadAttentionCall,
  MultiheadAttentionOptions,
} from "./modules/attention/multihead-options.js";
export type {
  AttentionBiasType,
  AttentionCall,
  AttentionMaskOptions,
  DotProductAttentionOptions,
  SoftmaxType,
} from "./modules/attention/options.js";
export type { SequenceId } from "./modules/attention/page-table.js";
export type {
  TransformerLayerCall,
  TransformerLayerOptions,
} from "./modules/attention/transformer-options.js";
export type { DelayedSnapshot } from "./modules/delayed-state.js";
export { DotProductAttention } from "./modules/dot-product-attention.js";
export { Embedding, type EmbeddingModuleOptions } from "./modules/embedding.js";
export type { TokenCounts } from "./modules/expert-ranks.js";
export { GroupedLinear, type GroupedLinearOptions } from "./modules/grouped-linear.js";
export { Inspector, type InspectorOptions, type TensorRecord } from "./modules/inspection/inspector.js";
export type {
  DisableFP8GEMM,
  FakeQuant,
  InspectedTensor,
  InspectionRule,
  LogTensorStats,
  NoOptions,
  PerTensorScaling,
} from "./modules/inspection/rules.js";
export type { ScaleHistogram, StatisticName, StatisticValues } from "./modules/inspection/statistics.js";
export { LayerNormLinear, type LayerNormLinearOptions } from "./modules/layer-norm-linear.js";
export { LayerNormMLP, type LayerNormMLPOptions, type MLPActivation } from "./modules/layer-norm-mlp.js";
export {
  type LayerBackward,
  type LayerCall,
  LayerQuantization,
  type LayerQuantizationOptions,
  type LayerWeightRequest,
} from "./modules/layer-quantization.js";
export { type LayerRecipe, setLayerRecipes } from "./modules/layer-recipes.js";
export type { LinearCall, LinearOptions } from "./modules/linear/parts.js";
export type { ParametersSplit } from "./modules/linear/split-parameter.js";
export type { WeightUse } from "./modules/linear/weight-cache.js";
export { Linear } from "./modules/linear.js";
export { defaultRandom, Module, type ModuleOptions, manualSeed } from "./modules/module.js";
export { MoELayer, type MoELayerCall, type MoELayerOptions, type MoEResult } from "./modules/moe-layer.js";
export { MultiheadAttention } from "./modules/multihead-attention.js";
export {
  LayerNorm,
  type Normalization,
  NormModule,
  type NormModuleOptions,
  RMSNorm,
} from "./modules/norm.js";
export type { NormedCall } from "./modules/normed-call.js";
export { type OffloadOptions, offloadActivations } from "./modules/offload-activations.js";
export { constantInit, type InitMethod, normalInit, onMetaDevice, Parameter } from "./modules/parameter.js";
export type {
  QuantizationSlots,
  QuantizationSnapshot,
  QuantizationState,
} from "./modules/quantization-state.js";
export {
  type QuantizedModelInitOptions,
  quantizedModelInit,
  withFp8Parameters,
} from "./modules/quantized-init.js";
export { recompute } from "./modules/recompute.js";
export type {
  FactorsRotaryScaling,
  LinearRotaryScaling,
  Llama3RotaryScaling,
  RotaryScaling,
  YarnRotaryScaling,
} from "./modules/rotary/inverse-frequencies.js";
export {
  type RotaryAngles,
  RotaryPositionEmbedding,
  type RotaryPositionEmbeddingOptions,
} from "./modules/rotary-position-embedding.js";
export { type Layer, Sequential } from "./modules/sequential.js";
export { loadStateDictionary, stateDictionary } from "./modules/state-dictionary.js";
export type { ParallelMode, ParallelOptions } from "./modules/tensor-parallel/options.js";
export { TransformerLayer } from "./modules/transformer-layer.js";
export { empty, tensor, zeros } from "./ops/create.js";
export type { ResultOptions } from "./ops/execute.js";
export { captureGraph, Graph } from "./ops/graph.js";
export * from "./ops/index.gen.js";
export { onSideStream } from "./ops/side-stream.js";
export { AdamW, type AdamWOptions, type AdamWStateOptions } from "./optimizers/adamw.js";
export { type CastMasterWeightsOptions, castMasterWeights } from "./optimizers/cast-master-weights.js";
export { clipGradNorm } from "./optimizers/clip-grad-norm.js";
export {
  GradScaler,
  type GradScalerOptions,
  type GradScalerState,
  type ScaledStep,
  type ScaledStepOptions,
} from "./optimizers/grad-scaler.js";
export { Muon, type MuonOptions, type MuonStepOptions } from "./optimizers/muon.js";
export {
  type Optimized,
  Optimizer,
  type OptimizerSlot,
  type SlotStep,
  type StateDTypes,
  type StepOptions,
  type StepTensors,
} from "./optimizers/optimizer.js";
export type { GroupedOptions, ParameterGroup } from "./optimizers/parameter-groups.js";
export {
  type DecayStyle,
  type LearningRateScheduleOptions,
  learningRateSchedule,
} from "./optimizers/schedule.js";
export { SGD, type SGDOptions, type SGDStateOptions } from "./optimizers/sgd.js";
export type { MasterDType, MasterOptions, MomentDType } from "./optimizers/state.js";
export {
  broadcastParameters,
  DataParallel,
  type DataParallelOptions,
} from "./parallel/data/data-parallel.js";
export { FullySharded, type FullyShardOptions, fullyShard } from "./parallel/fsdp/fully-shard.js";
export type { ShardingMesh } from "./parallel/fsdp/mesh.js";
export type { PipelineAction, PipelineActionKind } from "./parallel/pipeline/action.js";
export type { PipelineInput, PipelineOptions, PipelineStage } from "./parallel/pipeline/options.js";
export { Pipeline } from "./parallel/pipeline/pipeline.js";
export { type PipelinePlace, pipelineSchedule } from "./parallel/pipeline/schedule.js";
export * from "./quantizers/index.gen.js";
export { normal, permutation, type RandomSource, randomWords } from "./random.js";
export {
  type BlockScalingDim,
  Float8BlockScaling,
  type Float8BlockScalingOptions,
  MXFP8BlockScaling,
  type MXFP8BlockScalingOptions,
  NVFP4BlockScaling,
  type NVFP4BlockScalingOptions,
  type NVFP4Scope,
} from "./recipes/block-scaled.js";
export { CustomRecipe, type CustomRecipeOptions, type QuantizerFactory } from "./recipes/custom.js";
export {
  type AmaxAlgorithm,
  DelayedScaling,
  type DelayedScalingOptions,
  Float8CurrentScaling,
  type Float8CurrentScalingOptions,
  type ScaleAlgorithm,
} from "./recipes/per-tensor.js";
export {
  type CommonRecipeOptions,
  type ProductOptions,
  Recipe,
  type RecipeOptions,
  StandardRecipe,
} from "./recipes/recipe.js";
export type { OperandQuantizer, QuantizerRole } from "./recipes/role.js";
export { checkRecipeSupport, getDefaultRecipe, type RecipeSupport } from "./recipes/support.js";
export {
  type AttentionTraits,
  BACKWARD_OVERRIDES,
  type BackwardOverride,
  type BackwardRole,
  FORMATS,
  type Format,
  type ForwardRole,
  type MMParams,
  type Pass,
  PRODUCTS,
  type Product,
  passOf,
  type QParams,
  RECIPES,
  type RecipeKind,
  type RecipeRow,
  ROLES,
  type Role,
} from "./recipes/table.js";
export { type Computed, differentiable, type VariableLike } from "./tape/differentiable.js";
export { gradEnabled, noGrad } from "./tape/grad-mode.js";
export type { HookedPass, HookHandle, PostAccumulateGradHook } from "./tape/hooks.js";
export type { Backward, BackwardPass } from "./tape/node.js";
export type { Gradient, Value } from "./tape/value.js";
export { Variable } from "./tape/variable.js";
export type { CopyGeometry, ScalePlacement } from "./tensor/geometry.js";
export type { Range, TensorPart } from "./tensor/part.js";
export {
  type CopyTensors,
  type Direction,
  type FourOverSix,
  type GivenRandomBits,
  type QuantizeCall,
  type QuantizedCopy,
  QuantizedTensor,
  type QuantizedTensorFields,
  type QuantizerOps,
  type QuantizeSpec,
  type ScaleLayout,
  type Usage,
} from "./tensor/quantized.js";
export { type Owned, Scope } from "./tensor/scope.js";
export type { DType, Shape, WideDType } from "./tensor/shape.js";
export type { Memory } from "./tensor/storage.js";
export { Tensor, type TensorData } from "./tensor/tensor.js";
