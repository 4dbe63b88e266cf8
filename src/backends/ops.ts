/**
 * The whole vocabulary: what each operation takes, as plain data. Outputs are preallocated tensors. Nothing
 * here knows of recipes or modules; src/ops/ validates and fills these in, a backend lowers them.
 */
import type { ACTIVATION, OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import type { QuantizedCopy, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

export type RoundingName = keyof typeof ROUNDING;
export type OverflowName = keyof typeof OVERFLOW;
export type ActivationName = keyof typeof ACTIVATION;

type Wide = Tensor<WideDType>;

/** Where random words come from: Philox 4x32-10 keyed by seed, counted by offset and element index. */
export interface RandomSource {
  readonly seed: bigint;
  readonly offset: bigint;
}

/** out = codes of x * scale, one rounding. */
export interface EncodeArgs {
  readonly x: Wide;
  /** The format word of the codes. */
  readonly word: number;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
  readonly random: RandomSource;
  readonly scale: number;
  readonly out: Tensor;
}

/** out = the values of the codes, rounded to out's type. */
export interface DecodeArgs {
  readonly x: Tensor;
  readonly word: number;
  readonly out: Wide;
}

/** out[0] = max |x|, NaN ignored. */
export interface AmaxArgs {
  readonly x: Wide;
  readonly out: Tensor<"f32">;
}

/** Quantizes x, seen as a matrix, into the copies given. */
export interface QuantizeArgs {
  readonly x: Wide;
  readonly spec: QuantizeSpec;
  readonly random: RandomSource;
  readonly scaleLayout: ScaleLayout;
  readonly rowwise?: QuantizedCopy | undefined;
  readonly columnwise?: QuantizedCopy | undefined;
  /** fp8-delayed: the scale to use, [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** fp8-delayed: raised to max |x| where that is larger, [1]. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /** The amax to use in place of x's own (fp8-current, nvfp4 rowwise): a group's maximum, [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** Does nothing where this holds exactly 1, [1]. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** out = the values of one copy. */
export interface DequantizeArgs {
  readonly spec: QuantizeSpec;
  readonly copy: QuantizedCopy;
  readonly direction: "rowwise" | "columnwise";
  readonly scaleLayout: ScaleLayout;
  /** out's shape is the logical one, whatever the copy's. */
  readonly out: Wide;
}

/** out [K,M] = x [M,K] transposed; any element type, FP4 included. */
export interface TransposeArgs {
  readonly x: Tensor;
  readonly out: Tensor;
}

/** Scales from one layout to another. */
export interface RelayoutArgs {
  readonly spec: QuantizeSpec;
  readonly direction: "rowwise" | "columnwise";
  /** Rows and columns of the quantized matrix. */
  readonly rows: number;
  readonly columns: number;
  readonly x: Tensor;
  readonly from: ScaleLayout;
  readonly out: Tensor;
  readonly to: ScaleLayout;
}

/** out [K,M] bf16 = the random Hadamard transform of each 16 of x's columns, x [M,K] bf16. */
export interface HadamardArgs {
  readonly x: Tensor<"bf16">;
  readonly signs: number;
  readonly out: Tensor<"bf16">;
}

export interface OpArgs {
  readonly encode: EncodeArgs;
  readonly decode: DecodeArgs;
  readonly amax: AmaxArgs;
  readonly quantize: QuantizeArgs;
  readonly dequantize: DequantizeArgs;
  readonly transpose: TransposeArgs;
  readonly relayout: RelayoutArgs;
  readonly hadamard: HadamardArgs;
}

export type OpName = keyof OpArgs;
