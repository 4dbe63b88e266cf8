/** The arguments of quantization, and their tensors. */
import type { RandomSource } from "../../random.js";
import type { QuantizedCopy, QuantizeSpec } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { AS_X, SCALAR, type Tensors, X } from "../tensors.js";
import type { ActivationName, SwigluClamp } from "./elementwise.js";
import { NORM, type NormArgs, STATISTICS } from "./rows.js";

const COPIES = { "rowwise?": "copy", "columnwise?": "copy", "amaxRecord?": "scalar" } as const;
const OPTIONAL_INPUTS = {
  "scale?": "checked",
  "amax?": "checked",
  "amaxColumnwise?": "checked",
  "randomBits?": "checked",
  "randomBitsColumnwise?": "checked",
} as const;

/** Arguments of `amax`: out[0] = max |x|, where NaN is ignored. */
export interface AmaxArgs {
  /** The values. The amax of an empty tensor is 0. */
  readonly x: Tensor<WideDType>;
  /** Output: the amax, [1]. */
  readonly out: Tensor<"f32">;
}

/** Computes the maximum magnitude of a tensor. */
export const amax: Tensors<AmaxArgs> = SCALAR;

/**
 * The position of a matrix [M, K] in a larger matrix. Row r is row `row + r` of the larger one. Column c is its column `column +
 * floor(c / width) * stride + c % width`, so that a shard of a gated layer can consist of several pieces. All values are
 * integers.
 */
export interface MatrixPart {
  /** The number of rows of the larger matrix. */
  readonly rows: number;
  /** The number of columns of the larger matrix. */
  readonly columns: number;
  /** The row of the larger matrix where the part begins. */
  readonly row: number;
  /** The column of the larger matrix where the part begins. */
  readonly column: number;
  /** The number of columns of a piece. It is K if there is only one piece. */
  readonly width: number;
  /** The distance between the first columns of consecutive pieces. */
  readonly stride: number;
}

/** Arguments of `quantize`: x, seen as a matrix [M, K], is quantized into one or both copies. */
export interface QuantizeArgs {
  /** The values. Leading dimensions are flattened into M. */
  readonly x: Tensor<WideDType>;
  /** All settings that determine the bits of the result, except random bits. */
  readonly spec: QuantizeSpec;
  /** The random bits, selected by element index. Read only if the spec rounds stochastically. */
  readonly random: RandomSource;
  /**
   * The position of x in a larger matrix. If given, x is rounded with the random bits of its elements in the larger matrix.
   * Default: x itself is the whole matrix.
   */
  readonly part?: MatrixPart | undefined;
  /**
   * Random bits for the rowwise copy that replace the bits of `random`: a u32 for each element, in the order of the codes
   * (numerics.md, choice 6). Either all written copies have random bits, or none.
   */
  readonly randomBits?: Tensor<"u32"> | undefined;
  /** As `randomBits`, for the columnwise copy. */
  readonly randomBitsColumnwise?: Tensor<"u32"> | undefined;
  /** Output: the rowwise copy, with scale blocks along K. At least one copy is given. */
  readonly rowwise?: QuantizedCopy | undefined;
  /**
   * Output: the columnwise copy, with scale blocks along M. If M is not a multiple of the block, x is extended by rows of zeros
   * (`blockedRows`).
   */
  readonly columnwise?: QuantizedCopy | undefined;
  /** For fp8-delayed: the scale, [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** For fp8-delayed, input and output: becomes the maximum of its value and max |x|, [1]. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /**
   * For fp8-current and the rowwise copy of nvfp4: an amax that replaces the amax of x, for example the maximum over a group,
   * [1].
   */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** A flag, [1]. If it is exactly 1, nothing is written. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** Quantizes values to codes and scales. */
export const quantize: Tensors<QuantizeArgs> = {
  writes: COPIES,
  reads: { ...X, ...OPTIONAL_INPUTS, "noop?": "checked" },
};

/** Arguments of `dequantize`: out = the values of one copy. */
export interface DequantizeArgs {
  /** The settings with which the copy was quantized. */
  readonly spec: QuantizeSpec;
  /** The copy: codes, scales and, for NVFP4, the amax. */
  readonly copy: QuantizedCopy;
  /** Output: the values, in the logical shape, even if the copy is stored transposed. */
  readonly out: Tensor<WideDType>;
}

/** Converts codes and scales to values. */
export const dequantize: Tensors<DequantizeArgs> = { writes: { out: "wide" }, reads: { copy: "checked" } };

/**
 * Arguments of `hadamard`: out [K, M'] is the random Hadamard transform of each 16 consecutive elements in the columns of x [M,
 * K], transposed. M' is M rounded up to a multiple of 16; zeros fill the last 16 elements of a column.
 */
export interface HadamardArgs {
  /** A bf16 matrix [M, K]. */
  readonly x: Tensor<"bf16">;
  /** The signs: if bit i is set, element i of each group of 16 is negated before the transform. */
  readonly signs: number;
  /** Output: the transform, [K, M']. */
  readonly out: Tensor<"bf16">;
}

/** Computes the random Hadamard transform of columns. */
export const hadamard: Tensors<HadamardArgs> = AS_X;

/**
 * Arguments of `biasGradQuantize`: quantizes x as `quantize` does, and writes its column sums to biasGrad [K] (numerics.md
 * §7.5).
 */
export interface BiasGradQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  /** Output: the column sums of x, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

/** Runs `quantize` and `columnSum` on a gradient. */
export const biasGradQuantize: Tensors<BiasGradQuantizeArgs> = {
  writes: { ...COPIES, biasGrad: "wide" },
  reads: { ...X, ...OPTIONAL_INPUTS },
};

/**
 * Arguments of `activationQuantize`: computes an activation, a gated activation, or the gradient of either with respect to x,
 * and quantizes it as `quantize` does (numerics.md §7.3).
 */
export interface ActivationQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  /** The activation function. */
  readonly kind: ActivationName;
  /** Whether the activation is gated: x [rows, 2n] has a in its left half and the gate g in its right half. */
  readonly gated: boolean;
  /** The constants of the clamped form, for a gated activation of kind silu only. */
  readonly clamp?: SwigluClamp | undefined;
  /** The gradient of the activation's result. If given, the gradient of x is quantized instead of the activation. */
  readonly grad?: Tensor<WideDType> | undefined;
}

/** Computes an activation, gated or not, or its gradient, and quantizes it. */
export const activationQuantize: Tensors<ActivationQuantizeArgs> = {
  writes: COPIES,
  reads: { ...X, ...OPTIONAL_INPUTS, "grad?": "checked" },
};

/**
 * Arguments of `normQuantize`: computes the norm of the rows of x, and quantizes it as `quantize` does (numerics.md §7.3). mean
 * and rstd are outputs as in `norm`.
 */
export interface NormQuantizeArgs extends Omit<QuantizeArgs, "noop">, Omit<NormArgs, "out"> {}

/** Computes a norm and quantizes it. */
export const normQuantize: Tensors<NormQuantizeArgs> = {
  writes: { ...COPIES, ...STATISTICS },
  reads: { ...NORM, ...OPTIONAL_INPUTS },
};
