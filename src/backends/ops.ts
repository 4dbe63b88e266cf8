/**
 * The arguments of every operation, as plain data. Outputs are allocated by the caller; a docstring that begins with "Output:"
 * marks them. Nothing here depends on recipes or modules: src/ops/ validates and completes arguments, and a backend runs them.
 */
import type { ACTIVATION, OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import type { RandomSource } from "../random.js";
import type { CopyGeometry } from "../tensor/geometry.js";
import type { QuantizedCopy, QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { GemmArgs } from "./gemm-args.js";

/** A rounding mode of `encode` (numerics.md §1): one of IEEE 754, round to odd, or stochastic rounding. */
export type RoundingName = keyof typeof ROUNDING;
/**
 * An overflow mode (numerics.md §1). Values beyond the format's maximum become the maximum (`saturate`), or infinity or NaN
 * (`nonfinite`).
 */
export type OverflowName = keyof typeof OVERFLOW;
/** The name of an activation, as in TransformerEngine and PyTorch. numerics.md §7.2 has the formulas. */
export type ActivationName = keyof typeof ACTIVATION;

/** Arguments of `encode`: out = the codes of x * scale, rounded once. */
export interface EncodeArgs {
  /** The values to encode. */
  readonly x: Tensor<WideDType>;
  /** The format word of the codes: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the format's maximum. */
  readonly overflow: OverflowName;
  /** The random bits for rounding `stochastic`, selected by element index. Not read for another mode. */
  readonly random: RandomSource;
  /** An f32 factor that multiplies x, in f32, before the rounding. */
  readonly scale: number;
  /** Output: the codes, in the shape of x. */
  readonly out: Tensor;
}

/** Arguments of `decode`: out = the values of the codes x, rounded to out's dtype. */
export interface DecodeArgs {
  /** The codes to decode. */
  readonly x: Tensor;
  /** The format word of the codes: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** Output: the values, in the shape of x. The value of a NaN code is NaN. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `amax`: out[0] = max |x|, where NaN is ignored. */
export interface AmaxArgs {
  /** The values. The amax of an empty tensor is 0. */
  readonly x: Tensor<WideDType>;
  /** Output: the amax, [1]. */
  readonly out: Tensor<"f32">;
}

/**
 * Where a matrix [M, K] lies in a larger one. Row r is its row `row + r`. Column c is its column
 * `column + floor(c / width) * stride + c % width`: a shard of a gated layer consists of several pieces. All are whole numbers.
 */
export interface MatrixPart {
  /** The rows of the larger matrix. */
  readonly rows: number;
  /** Its columns. */
  readonly columns: number;
  /** The first row. */
  readonly row: number;
  /** The first column. */
  readonly column: number;
  /** The columns of a piece; K where there is one. */
  readonly width: number;
  /** The columns from the beginning of one piece to that of the next. */
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
  /** Random bits are those of the elements of a larger matrix, in which x lies. Default: x is all of it. */
  readonly part?: MatrixPart | undefined;
  /** Output: the rowwise copy, with scale blocks along K. At least one copy is given. */
  readonly rowwise?: QuantizedCopy | undefined;
  /** Output: the columnwise copy, with scale blocks along M. */
  readonly columnwise?: QuantizedCopy | undefined;
  /** For fp8-delayed: the scale, [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** For fp8-delayed, input and output: becomes the maximum of its value and max |x|, [1]. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /**
   * For fp8-current and the rowwise copy of nvfp4: an amax to use instead of x's own, for example the maximum over a group,
   * [1].
   */
  readonly amax?: Tensor<"f32"> | undefined;
  /** The same as `amax` for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** A flag, [1]. If it is exactly 1, nothing is written. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** Arguments of `dequantize`: out = the values of one copy. */
export interface DequantizeArgs {
  /** The settings with which the copy was made. */
  readonly spec: QuantizeSpec;
  /** The copy: codes, scales and, for NVFP4, the amax. */
  readonly copy: QuantizedCopy;
  /** Output: the values, in the logical shape, even if the copy is stored transposed. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `transpose`: out [K, M] is x [M, K] transposed. All dtypes are allowed, also FP4. */
export interface TransposeArgs {
  /** A matrix [M, K] of any dtype. */
  readonly x: Tensor;
  /** Output: [K, M], in the dtype of x. */
  readonly out: Tensor;
}

/** Arguments of `swapAxes`: out [outer, q, middle, p, inner] = x [outer, p, middle, q, inner]. */
export interface SwapAxesArgs {
  /** The elements, of a dtype of at least 8 bits. Their number is the product of `sizes`. */
  readonly x: Tensor;
  /** The five dimensions of x. p and q are exchanged. */
  readonly sizes: readonly [outer: number, p: number, middle: number, q: number, inner: number];
  /** Output: [outer, q, middle, p, inner], in the dtype of x. */
  readonly out: Tensor;
}

/** Arguments of `relayout`, which converts scales from one layout to another. */
export interface RelayoutArgs {
  /** The scales to rearrange. */
  readonly x: Tensor;
  /** The geometry of the copy that the scales `x` belong to. */
  readonly from: CopyGeometry;
  /** Output: the scales in the layout of `to`. Padding is zero. */
  readonly out: Tensor;
  /** The geometry of the same copy in the new layout. */
  readonly to: CopyGeometry;
}

/**
 * Arguments of `hadamard`: out [K, M] is the random Hadamard transform of each 16 consecutive elements in the columns of x [M,
 * K], transposed.
 */
export interface HadamardArgs {
  /** A bf16 matrix [M, K]. M is a multiple of 16. */
  readonly x: Tensor<"bf16">;
  /** The signs: if bit i is set, element i of each 16 is negated before the transform. */
  readonly signs: number;
  /** Output: the transform, [K, M]. */
  readonly out: Tensor<"bf16">;
}

/** Arguments of `sweep`: out is the pair of digests of one chunk of 2^24 f32 bit patterns, encoded. */
export interface SweepArgs {
  /** The format word to encode to: the format's fields packed in a u32 (assembly/contract.ts). */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** What happens to values beyond the format's maximum. */
  readonly overflow: OverflowName;
  /** The random bits for rounding `stochastic`. The bit pattern is the element index. */
  readonly random: RandomSource;
  /** The number of the chunk, 0 to 255. */
  readonly chunk: number;
  /** Output: the two digests, [2]. */
  readonly out: Tensor<"u32">;
}

/** Arguments of `activation`: out = act(x) for each element. */
export interface ActivationArgs {
  /** The argument of the activation function. */
  readonly x: Tensor<WideDType>;
  /** The activation function. */
  readonly kind: ActivationName;
  /** Output: the result, in the shape of x, rounded once to its dtype. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `activationBackward`: out = grad * act'(x) for each element. */
export interface ActivationBackwardArgs extends ActivationArgs {
  /** The gradient of the activation's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
}

/**
 * The constants of the clamped swiglu. Its result is a' / (1 + e^(-alpha * a')) * g' with a' = min(a, limit) and g' = clamp(g,
 * -limit, limit) + offset.
 */
export interface SwigluClamp {
  /** The upper bound of a, and the bound of |g|. At least 0. */
  readonly limit: number;
  /** The factor of a' in the logistic function. */
  readonly alpha: number;
  /** A constant that is added to the clamped gate. */
  readonly offset: number;
}

/** Arguments of `gated`: out [rows, n] = act(a) * g, where x [rows, 2n] has a in its left half and g in its right half. */
export interface GatedArgs {
  /** The input, [rows, 2n]: a in the left half, the gate g in the right half. */
  readonly x: Tensor<WideDType>;
  /** The activation function of a. */
  readonly kind: ActivationName;
  /** The constants of the clamped form, for kind silu only. */
  readonly clamp?: SwigluClamp | undefined;
  /** Output: act(a) * g, [rows, n], rounded once to its dtype. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `gatedBackward`: out [rows, 2n] has the gradient of a in its left half and of g in its right half. */
export interface GatedBackwardArgs extends GatedArgs {
  /** The gradient of act(a) * g, [rows, n]. */
  readonly grad: Tensor<WideDType>;
}

/**
 * Arguments of `biasGradQuantize`: quantizes x as `quantize` does, and writes its column sums to biasGrad [K] (numerics.md
 * §7.5).
 */
export interface BiasGradQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  /** Output: the column sums of x, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

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

/** Arguments of `norm`: LayerNorm of the rows of x or, without `beta` and `mean`, RMSNorm. */
export interface NormArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** The factor of each column, [K]. */
  readonly gamma: Tensor<WideDType>;
  /** The addend of each column, [K], in the dtype of gamma. Absent for RMSNorm. */
  readonly beta?: Tensor<WideDType> | undefined;
  /** An f32 value that is added to the variance or, for RMSNorm, to the mean square. */
  readonly eps: number;
  /** Whether the tensor `gamma` holds gamma - 1. */
  readonly zeroCenteredGamma: boolean;
  /** Output: the normalized rows, in the shape of x. */
  readonly out: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. Absent for RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** Output: 1 / sqrt(variance + eps) of each row, [rows]; for RMSNorm, the mean square takes the place of the variance. */
  readonly rstd: Tensor<"f32">;
}

/**
 * Arguments of `normQuantize`: computes the norm of the rows of x, and quantizes it as `quantize` does (numerics.md §7.3). mean
 * and rstd are outputs as in `norm`.
 */
export interface NormQuantizeArgs extends Omit<QuantizeArgs, "noop">, Omit<NormArgs, "out"> {}

/** Arguments of `normBackward`, which computes the gradients of a norm. */
export interface NormBackwardArgs {
  /** The gradient of the norm's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor<WideDType>;
  /** The gamma of the forward pass, [K]. */
  readonly gamma: Tensor<WideDType>;
  /** Whether the tensor `gamma` holds gamma - 1. */
  readonly zeroCenteredGamma: boolean;
  /** The mean of each row from the forward pass, [rows]. Absent for RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** The `rstd` of each row from the forward pass, [rows]. */
  readonly rstd: Tensor<"f32">;
  /** Output: the gradient of x, in the shape of x. */
  readonly dx: Tensor<WideDType>;
  /** Output: the gradient of gamma, [K]. */
  readonly dgamma: Tensor<WideDType>;
  /** Output: the gradient of beta, [K]. Absent for RMSNorm. */
  readonly dbeta?: Tensor<WideDType> | undefined;
}

/**
 * Arguments of `crossEntropy`: the softmax cross-entropy of each row of logits, and the statistics that the backward pass
 * needs.
 */
export interface CrossEntropyArgs {
  /** The logits, [..., V], seen as rows of V elements. */
  readonly logits: Tensor<WideDType>;
  /** The class index of each row, [rows]. An index outside 0 to V - 1 that is not `ignore` makes the row's loss NaN. */
  readonly targets: Tensor<"i32">;
  /** The weight of the uniform distribution in the target distribution, 0 to 1. */
  readonly smoothing: number;
  /** A target value whose rows have loss 0 and gradient 0. */
  readonly ignore: number;
  /** Output: the loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
  /** Output of the forward pass, input of the backward pass: the maximum logit of each row, [rows]. */
  readonly maximum: Tensor<"f32">;
  /** Output of the forward pass, input of the backward pass: the sum of exp(x - maximum) of each row, [rows]. */
  readonly total: Tensor<"f32">;
}

/** Arguments of `crossEntropyBackward`: dx = the gradient of the logits, given the gradient of each row's loss. */
export interface CrossEntropyBackwardArgs extends Omit<CrossEntropyArgs, "loss"> {
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of the logits, in their shape. */
  readonly dx: Tensor<WideDType>;
}

/** Arguments of `mse`: loss [rows] = the mean of (x - target)^2 over each row. */
export interface MseArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** The target, in the shape of x. */
  readonly target: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. */
  readonly loss: Tensor<"f32">;
}

/** Arguments of `mseBackward`: dx = the gradient of x, given the gradient of each row's loss. */
export interface MseBackwardArgs extends Omit<MseArgs, "loss"> {
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of x, in its shape. */
  readonly dx: Tensor<WideDType>;
}

/**
 * Arguments of `embedding`: out [..., D] = the rows of table [V, D] whose indices are ids. An index outside 0..V-1 gives a row
 * of NaN.
 */
export interface EmbeddingArgs {
  /** The table, [V, D]. */
  readonly table: Tensor<WideDType>;
  /** The row indices, in any shape. */
  readonly ids: Tensor<"i32">;
  /** Output: the rows, [..., D], rounded to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/**
 * Arguments of `embeddingBackward`: row v of out [V, D] is the sum of those rows of grad whose index is v, in ascending order,
 * in f32.
 */
export interface EmbeddingBackwardArgs {
  /** The gradient of the looked-up rows, [..., D]. */
  readonly grad: Tensor<WideDType>;
  /** The row indices of the forward pass. Indices outside the table are ignored. */
  readonly ids: Tensor<"i32">;
  /** Output: the gradient of the table, [V, D]. */
  readonly out: Tensor<WideDType>;
}

/**
 * Arguments of `squareSum`: out [1] = the sum of the squares of x. Chunks of 4096 elements are summed first, then the sums of
 * the chunks.
 */
export interface SquareSumArgs {
  /** The values. The sum of an empty tensor is 0. */
  readonly x: Tensor<WideDType>;
  /** Output: the sum, [1]. */
  readonly out: Tensor<"f32">;
}

/**
 * Arguments of `clipFactor`: norm [1] = the square root of the sum of sums [n], and factor [1] = min(1, maxNorm / (norm +
 * 1e-6)).
 */
export interface ClipFactorArgs {
  /** One sum of squares per tensor, [n]. */
  readonly sums: Tensor<"f32">;
  /** The maximum norm, an f32 value of at least 0. */
  readonly maxNorm: number;
  /** Output: the norm of all tensors together, [1]. */
  readonly norm: Tensor<"f32">;
  /** Output: the clipping factor, [1]. */
  readonly factor: Tensor<"f32">;
}

/**
 * Arguments of `updateScales`: for each of n slots whose amax in row 0 is not 0, rotates its history and computes its scale.
 * Both are updated in place.
 */
export interface UpdateScalesArgs {
  /** The amax histories, [length, n]. Row 0 has the newest amaxes. */
  readonly amaxHistory: Tensor<"f32">;
  /** The scales, [n]. */
  readonly scale: Tensor<"f32">;
  /** The value that the amax is scaled to: the format's maximum * 2^-margin, an f32 value. */
  readonly scaledMax: number;
  /** Whether the scale is computed from the newest amax. If false, it is computed from the maximum of the history. */
  readonly mostRecent: boolean;
}

/** Arguments of `add`: out = x + y for each element. out may be x or y. */
export interface AddArgs {
  /** The first addend. */
  readonly x: Tensor<WideDType>;
  /** The second addend, in the shape of x. */
  readonly y: Tensor<WideDType>;
  /** Output: the f32 sum, rounded once to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `scaled`: out = x * factor for each element. out may be x. */
export interface ScaledArgs {
  /** The tensor that is multiplied. */
  readonly x: Tensor<WideDType>;
  /** The factor, an f32 value. */
  readonly factor: number;
  /** Output: the f32 product, rounded once to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `softmax`: out = the softmax of scale * x over the last dimension of x [..., R, C]. */
export interface SoftmaxArgs {
  /** The input, [..., R, C]. */
  readonly x: Tensor<WideDType>;
  /** The factor of x, an f32 value. */
  readonly scale: number;
  /** Whether the elements of row i beyond column i + (C - R) are masked. */
  readonly causal: boolean;
  /** Output: the softmax, in the shape of x. A masked element is 0. */
  readonly out: Tensor<WideDType>;
}

/** Arguments of `softmaxBackward`: dx = the gradient of x, given y = softmax(x) and the gradient of y. */
export interface SoftmaxBackwardArgs extends Pick<SoftmaxArgs, "scale" | "causal"> {
  /** The gradient of y, in the shape of y. */
  readonly grad: Tensor<WideDType>;
  /** The result y of the forward pass. */
  readonly y: Tensor<WideDType>;
  /** Output: the gradient of x, in the shape of y. */
  readonly dx: Tensor<WideDType>;
}

/**
 * Arguments of `columnSum`: out [K] = the sums of x's columns in f32. Each chunk of 32 rows is summed in ascending order; then
 * the sums of the chunks are added in ascending order.
 */
export interface ColumnSumArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** Output: the sums, rounded once to the dtype of out. They are 0 if there are no rows. */
  readonly out: Tensor<WideDType>;
}

/** The arguments of every optimizer step. All numbers are f32 values. `parameter` is updated in place. */
export interface StepArgs {
  /** The gradient, in the shape of the parameter. */
  readonly grad: Tensor<WideDType>;
  /** The f32 master parameter, updated in place. */
  readonly parameter: Tensor<"f32">;
  /** Output: the new parameter, rounded to the dtype of copy. */
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
  /** A factor of the gradient, [1]. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** A flag, [1]. If it is exactly 1, nothing is written. */
  readonly noop?: Tensor<"f32"> | undefined;
  /** The learning rate. */
  readonly learningRate: number;
  /** The factor of weight decay. 0 means none. */
  readonly weightDecay: number;
}

/** Arguments of `sgd`: a step of stochastic gradient descent, with momentum if there is a buffer m. */
export interface SGDArgs extends StepArgs {
  /** The momentum buffer, updated in place. It is not read on the first step. */
  readonly m?: Tensor<"f32"> | undefined;
  /** The factor of the momentum buffer. 0 if there is no buffer. */
  readonly momentum: number;
  /** 1 - dampening: the factor of the gradient as it is added to the buffer. */
  readonly undamped: number;
  /** Whether to use Nesterov momentum: the update is the gradient plus momentum times the new buffer. */
  readonly nesterov: boolean;
  /** Whether this is the first step, which sets the buffer to the gradient. */
  readonly first: boolean;
}

/** Arguments of `adamw`: a step of AdamW or, if weight decay is not decoupled, of Adam. */
export interface AdamWArgs extends StepArgs {
  /** The exponential moving average of the gradient, without bias correction. Updated in place. */
  readonly m: Tensor<"f32">;
  /** The exponential moving average of the squared gradient, without bias correction. Updated in place. */
  readonly v: Tensor<"f32">;
  /** The decay rate of `m`, at least 0 and below 1. */
  readonly beta1: number;
  /** The decay rate of `v`, at least 0 and below 1. */
  readonly beta2: number;
  /** The bias correction of `m`: 1 - beta1^step. */
  readonly correction1: number;
  /** The bias correction of `v`: 1 - beta2^step. */
  readonly correction2: number;
  /** A constant that is added to sqrt(v / correction2). */
  readonly eps: number;
  /** Whether weight decay is applied to the parameter (AdamW) instead of being added to the gradient (Adam). */
  readonly decoupled: boolean;
}

/**
 * The arguments of each operation, by the operation's name. `Backend.run` and `Backend.supports` take them; they include the
 * outputs.
 */
export interface OpArgs {
  /** Converts values to codes. */
  readonly encode: EncodeArgs;
  /** Converts codes to values. */
  readonly decode: DecodeArgs;
  /** Computes the maximum magnitude of a tensor. */
  readonly amax: AmaxArgs;
  /** Quantizes values to codes and scales. */
  readonly quantize: QuantizeArgs;
  /** Runs `quantize` and `columnSum` on a gradient. */
  readonly biasGradQuantize: BiasGradQuantizeArgs;
  /** Converts codes and scales to values. */
  readonly dequantize: DequantizeArgs;
  /** Transposes a matrix of any dtype. */
  readonly transpose: TransposeArgs;
  /** Exchanges two dimensions of a tensor. */
  readonly swapAxes: SwapAxesArgs;
  /** Converts scales from one layout to another. */
  readonly relayout: RelayoutArgs;
  /** Computes the random Hadamard transform of columns. */
  readonly hadamard: HadamardArgs;
  /** Computes the digests of a chunk of all f32 bit patterns, encoded. */
  readonly sweep: SweepArgs;
  /** Applies an activation function. */
  readonly activation: ActivationArgs;
  /** Computes the gradient of an activation's argument. */
  readonly activationBackward: ActivationBackwardArgs;
  /** Applies a gated activation. */
  readonly gated: GatedArgs;
  /** Computes the gradients of both halves of a gated activation's argument. */
  readonly gatedBackward: GatedBackwardArgs;
  /** Computes an activation, gated or not, or its gradient, and quantizes it. */
  readonly activationQuantize: ActivationQuantizeArgs;
  /** Computes LayerNorm or RMSNorm. */
  readonly norm: NormArgs;
  /** Computes a norm and quantizes it. */
  readonly normQuantize: NormQuantizeArgs;
  /** Computes the gradients of a norm's input and parameters. */
  readonly normBackward: NormBackwardArgs;
  /** Computes the softmax cross-entropy of rows. */
  readonly crossEntropy: CrossEntropyArgs;
  /** Computes the gradient of the logits of `crossEntropy`. */
  readonly crossEntropyBackward: CrossEntropyBackwardArgs;
  /** Computes the softmax over the last dimension. */
  readonly softmax: SoftmaxArgs;
  /** Computes the gradient of the argument of `softmax`. */
  readonly softmaxBackward: SoftmaxBackwardArgs;
  /** Adds two tensors. */
  readonly add: AddArgs;
  /** Multiplies a tensor by a number. */
  readonly scaled: ScaledArgs;
  /** Sums columns. */
  readonly columnSum: ColumnSumArgs;
  /** Computes the mean squared error of rows. */
  readonly mse: MseArgs;
  /** Computes the gradient of the first argument of `mse`. */
  readonly mseBackward: MseBackwardArgs;
  /** Looks up rows of a table by index. */
  readonly embedding: EmbeddingArgs;
  /** Computes the gradient of the table of `embedding`. */
  readonly embeddingBackward: EmbeddingBackwardArgs;
  /** Sums the squares of a tensor. */
  readonly squareSum: SquareSumArgs;
  /** Computes the norm of several tensors, and the factor that clips it. */
  readonly clipFactor: ClipFactorArgs;
  /** Computes new scales of delayed scaling from amax histories. */
  readonly updateScales: UpdateScalesArgs;
  /** Runs a step of stochastic gradient descent. */
  readonly sgd: SGDArgs;
  /** Runs a step of AdamW or Adam. */
  readonly adamw: AdamWArgs;
  /** Computes a matrix product, or a batch of products. */
  readonly gemm: GemmArgs;
}

/** The name of an operation of a backend. */
export type OpName = keyof OpArgs;
