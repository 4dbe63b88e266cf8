/** The report of `inspectCheckpoint`. */
import type { PackedLayoutName } from "../dialects/packed/packed.js";
import type { FileDType } from "../io/dtypes.js";
import type { Recipe } from "../io/quantized/recipe.js";
import type { Direction, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { GgufFacts } from "./gguf/facts.js";
import type { Finding } from "./judge/findings.js";
import type { OriginalError } from "./judge/original/error.js";
import type { ScaleStatistics } from "./judge/statistics/scale-counter.js";
import type { CodeTypeName } from "./stored/code-types.js";
import type { ConfigClaim } from "./stored/config/claim.js";
import type { ConventionName, ScaleKind } from "./stored/conventions.js";

/** Statistics of the scales of a weight, and the stored form of the scales. */
export interface StoredScaleStatistics extends ScaleStatistics {
  /** The type of the tensor of scales. */
  readonly dtype: FileDType;
  /** The stored global scale. Absent if the weight has no global scale, or one global scale for each matrix. */
  readonly global?: number;
  /** The global scales of a stack, one for each matrix. */
  readonly globals?: readonly number[];
}

/** A quantized weight of another library and its statistics. */
export interface WeightReport {
  /** The name of the weight before quantization. */
  readonly name: string;
  /** The convention that its tensors have. */
  readonly convention: ConventionName;
  /** The code type. */
  readonly type: CodeTypeName;
  /** The shape before quantization. */
  readonly shape: Shape;
  /** The elements that share a scale. */
  readonly scaleKind: ScaleKind;
  /** The rows and columns that share a scale. */
  readonly block: readonly [number, number];
  /** Whether scales lie in the swizzled layout of tensor cores. */
  readonly swizzled: boolean;
  /** The number of bits of codes and scales per element. */
  readonly bits: number;
  /** Statistics of the scales. */
  readonly scales: StoredScaleStatistics;
  /** The number of different codes that occur. */
  readonly codesUsed: number;
  /** The number of codes of the code type. */
  readonly codesOfType: number;
  /** The share of elements that are zero. */
  readonly zeros: number;
  /** The share of elements with the largest magnitude of a code. */
  readonly saturated: number;
  /** The share of elements whose codes are NaN. */
  readonly nans: number;
  /** The largest magnitude of a value. */
  readonly amax: number;
  /** The root mean square of the values. */
  readonly rms: number;
  /** The error in comparison with the original. Absent without an original, or if the original lacks the weight. */
  readonly error?: OriginalError;
}

/** A tensor that is not quantized. */
export interface PlainReport {
  /** The name of the tensor. */
  readonly name: string;
  /** The element type; F32 for a packed tensor of a GGUF file. */
  readonly dtype: FileDType;
  /** The shape. */
  readonly shape: Shape;
  /** The layout of a packed tensor of a GGUF file, whose values are read as F32. */
  readonly layout?: PackedLayoutName;
}

/** The quantization of a tensor that `lockstep quantize` or `saveTensors` wrote. */
export interface LockstepWeightReport extends Pick<QuantizeSpec, "quantizer" | "format" | "tile"> {
  /** The shape before quantization. */
  readonly shape: Shape;
  /** The element type before quantization. */
  readonly dtype: WideDType;
  /** The layout of the scales. */
  readonly scales: ScaleLayout;
  /** The copies in the file: rowwise, columnwise or both. */
  readonly usage: readonly Direction[];
}

/** The report of a recipe. */
export function lockstepReport({ spec, shape, dtype, scales, usage }: Recipe): LockstepWeightReport {
  return { quantizer: spec.quantizer, format: spec.format, tile: spec.tile, shape, dtype, scales, usage };
}

/** The result of `inspectCheckpoint`. */
export interface CheckpointReport {
  /** The path of the checkpoint. */
  readonly path: string;
  /** The number of shards that could be read. */
  readonly shards: number;
  /** The number of tensors. */
  readonly tensors: number;
  /** The version and metadata of a GGUF file. */
  readonly gguf?: GgufFacts;
  /** The quantization that the configuration claims. */
  readonly claim?: ConfigClaim;
  /** The selected weights of other libraries. */
  readonly weights: readonly WeightReport[];
  /** The tensors that this library quantized, by name. */
  readonly lockstepWeights: Readonly<Record<string, LockstepWeightReport>>;
  /** The tensors that are not quantized. */
  readonly unquantized: readonly PlainReport[];
  /** The number of elements of all weights and unquantized tensors. */
  readonly elements: number;
  /** The average number of bits per element in the files. */
  readonly bitsPerWeight: number;
  /** Errors, warnings and notes. */
  readonly findings: readonly Finding[];
}
