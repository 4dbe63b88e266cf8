/**
 * The arguments of every operation, as plain data. Outputs are preallocated tensors. Nothing here knows of recipes or modules:
 * src/ops/ validates and fills in arguments, a backend lowers them.
 */
import type { ACTIVATION, OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import type { RandomSource } from "../random.js";
import type { CopyGeometry } from "../tensor/geometry.js";
import type { QuantizedCopy, QuantizeSpec } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { GemmArgs } from "./gemm-args.js";

/** A rounding mode of `encode` (numerics.md §1): IEEE 754's, to odd, or stochastic. */
export type RoundingName = keyof typeof ROUNDING;
/**
 * The overflow mode (numerics.md §1): values beyond the format's maximum become the maximum (`saturate`), or infinity or NaN
 * (`nonfinite`).
 */
export type OverflowName = keyof typeof OVERFLOW;
/** An activation by its name in TransformerEngine and PyTorch; numerics.md §7.2 has the formulas. */
export type ActivationName = keyof typeof ACTIVATION;

/** out = codes of x * scale, one rounding. */
export interface EncodeArgs {
  /** Values to encode. */
  readonly x: Tensor<WideDType>;
  /** The format word of the codes. */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** How values beyond the maximum are converted. */
  readonly overflow: OverflowName;
  /** Random bits by element index, for stochastic rounding; not read under another. */
  readonly random: RandomSource;
  /** Multiplies x before it is rounded, an f32 product. */
  readonly scale: number;
  /** Output: the codes, in the shape of x. */
  readonly out: Tensor;
}

/** out = the values of the codes, rounded to out's type. */
export interface DecodeArgs {
  /** Codes to decode. */
  readonly x: Tensor;
  /** The format word of the codes. */
  readonly word: number;
  /** Output: the values, in the shape of x; a NaN code becomes a NaN. */
  readonly out: Tensor<WideDType>;
}

/** out[0] = max |x|, NaN ignored. */
export interface AmaxArgs {
  /** An empty tensor has amax 0. */
  readonly x: Tensor<WideDType>;
  /** Output: the amax, [1]. */
  readonly out: Tensor<"f32">;
}

/** Quantizes x, seen as a matrix, into the copies given. */
export interface QuantizeArgs {
  /** The values; leading dimensions are flattened, so that it is [M, K]. */
  readonly x: Tensor<WideDType>;
  /** All settings that determine the bits, except random bits. */
  readonly spec: QuantizeSpec;
  /** Random bits by element index; read where the spec rounds stochastically. */
  readonly random: RandomSource;
  /** Output: the copy scaled along K. At least one copy is given. */
  readonly rowwise?: QuantizedCopy | undefined;
  /** Output: the copy scaled along M. */
  readonly columnwise?: QuantizedCopy | undefined;
  /** fp8-delayed: the scale to use, [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  /** fp8-delayed: raised to max |x| where that is larger, [1]. */
  readonly amaxRecord?: Tensor<"f32"> | undefined;
  /** The amax to use in place of x's own (fp8-current, nvfp4 rowwise): a group's maximum, [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy of nvfp4. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
  /** If this is exactly 1, nothing is written; [1]. */
  readonly noop?: Tensor<"f32"> | undefined;
}

/** out = the values of one copy. */
export interface DequantizeArgs {
  /** How the copy was made. */
  readonly spec: QuantizeSpec;
  /** Codes, scales and, of NVFP4, the amax. */
  readonly copy: QuantizedCopy;
  /** Output: the values, in the logical shape, whatever the shape of the copy. */
  readonly out: Tensor<WideDType>;
}

/** out [K,M] = x [M,K] transposed; any element type, FP4 included. */
export interface TransposeArgs {
  /** [M, K], of any element type. */
  readonly x: Tensor;
  /** Output: [K, M], of the type of x. */
  readonly out: Tensor;
}

/** out [outer, q, middle, p, inner] = x [outer, p, middle, q, inner], elements of whole bytes. */
export interface SwapAxesArgs {
  /** Elements of whole bytes, of `sizes` in all. */
  readonly x: Tensor;
  /** The five dimensions of x, of which p and q are exchanged. */
  readonly sizes: readonly [outer: number, p: number, middle: number, q: number, inner: number];
  /** Output: [outer, q, middle, p, inner], of the type of x. */
  readonly out: Tensor;
}

/** Scales from one layout to another. */
export interface RelayoutArgs {
  /** The scales to rearrange. */
  readonly x: Tensor;
  /** The copy with the scales of `x`. */
  readonly from: CopyGeometry;
  /** Output: the scales in the layout of `to`; padding is zero. */
  readonly out: Tensor;
  /** The same copy with the scales of `out`. */
  readonly to: CopyGeometry;
}

/** out [K,M] bf16 = the random Hadamard transform of each 16 of x's columns, x [M,K] bf16. */
export interface HadamardArgs {
  /** [M, K], M a multiple of 16. */
  readonly x: Tensor<"bf16">;
  /** Bit i set: element i of each 16 is negated first. */
  readonly signs: number;
  /** Output: the transform, [K, M]. */
  readonly out: Tensor<"bf16">;
}

/** out (u32 [2]) = the digest pair of one chunk of 2^24 of all f32 bit patterns, encoded. */
export interface SweepArgs {
  /** The format word to encode to. */
  readonly word: number;
  /** The rounding mode. */
  readonly rounding: RoundingName;
  /** How values beyond the maximum are converted. */
  readonly overflow: OverflowName;
  /** For stochastic rounding; the element's index is the bit pattern. */
  readonly random: RandomSource;
  /** 0 to 255. */
  readonly chunk: number;
  /** Output: the digests, [2]. */
  readonly out: Tensor<"u32">;
}

/** out = act(x), element by element. */
export interface ActivationArgs {
  /** The activation's argument. */
  readonly x: Tensor<WideDType>;
  /** Which function. */
  readonly kind: ActivationName;
  /** Output: the result, in the shape of x, rounded once to its type. */
  readonly out: Tensor<WideDType>;
}

/** out = grad * act'(x). */
export interface ActivationBackwardArgs extends ActivationArgs {
  /** The gradient of the activation's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
}

/** Bounds of the clamped swiglu: min(a, limit), logistic argument alpha * a, gate clamped to +-limit plus offset. */
export interface SwigluClamp {
  /** The bound of a from above, and of the gate on both sides; at least 0. */
  readonly limit: number;
  /** The factor of the logistic function's argument. */
  readonly alpha: number;
  /** Added to the clamped gate. */
  readonly offset: number;
}

/** out [rows, n] = act(a) * g for x [rows, 2n] = a | g. */
export interface GatedArgs {
  /** [rows, 2n]: a in the left half, the gate g in the right. */
  readonly x: Tensor<WideDType>;
  /** Which function of a. */
  readonly kind: ActivationName;
  /** With kind silu: the clamped form. */
  readonly clamp?: SwigluClamp | undefined;
  /** Output: act(a) * g, [rows, n], rounded once to its type. */
  readonly out: Tensor<WideDType>;
}

/** out [rows, 2n] = the gradients of a | g. */
export interface GatedBackwardArgs extends GatedArgs {
  /** The gradient of act(a) * g, [rows, n]; `out` is [rows, 2n]. */
  readonly grad: Tensor<WideDType>;
}

/** Quantizes x, seen as a matrix, into the copies given; biasGrad [K] = the sums of x's columns (numerics.md §7.5). */
export interface BiasGradQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  /** Output: the column sums, [K]. */
  readonly biasGrad: Tensor<WideDType>;
}

/** Quantizes act(x), its gated form, or the gradient of x under either (numerics.md §7.3), into the copies given. */
export interface ActivationQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  /** Which function. */
  readonly kind: ActivationName;
  /** x [rows, 2n] is a | g. */
  readonly gated: boolean;
  /** The clamped form; gated, with kind silu only. */
  readonly clamp?: SwigluClamp | undefined;
  /** The gradient of the result. If given, the gradient of x is quantized. */
  readonly grad?: Tensor<WideDType> | undefined;
}

/** LayerNorm, or RMSNorm without mean, of the rows of x. */
export interface NormArgs {
  /** [..., K], seen as rows of K. */
  readonly x: Tensor<WideDType>;
  /** [K], the factor. */
  readonly gamma: Tensor<WideDType>;
  /** [K], the addend, of the type of gamma. Absent in RMSNorm. */
  readonly beta?: Tensor<WideDType> | undefined;
  /** Added to the variance, an f32. */
  readonly eps: number;
  /** Whether gamma is stored minus 1. */
  readonly zeroCenteredGamma: boolean;
  /** Output: the norm, in the shape of x. */
  readonly out: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. Absent in RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** Output: 1 / sqrt(variance + eps) of each row, [rows]. */
  readonly rstd: Tensor<"f32">;
}

/** Quantizes the norm of the rows of x (numerics.md §7.3) into the copies given; mean and rstd as `norm`. */
export interface NormQuantizeArgs extends Omit<QuantizeArgs, "noop">, Omit<NormArgs, "out"> {}

/** The gradients of `norm`; dbeta where there was a beta. */
export interface NormBackwardArgs {
  /** The gradient of the norm's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor<WideDType>;
  /** The gamma of the forward pass, [K]. */
  readonly gamma: Tensor<WideDType>;
  /** Whether gamma is stored minus 1. */
  readonly zeroCenteredGamma: boolean;
  /** The mean of the forward pass, [rows]. Absent in RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** The rstd of the forward pass, [rows]. */
  readonly rstd: Tensor<"f32">;
  /** Output: the gradient of x, in its shape. */
  readonly dx: Tensor<WideDType>;
  /** Output: the gradient of gamma, [K]. */
  readonly dgamma: Tensor<WideDType>;
  /** Output: the gradient of beta, [K]. Absent in RMSNorm. */
  readonly dbeta?: Tensor<WideDType> | undefined;
}

/** Softmax cross-entropy of each row of logits; maximum and total are what the backward pass needs. */
export interface CrossEntropyArgs {
  /** [..., V], seen as rows of V. */
  readonly logits: Tensor<WideDType>;
  /** The class of each row, [rows]; one outside 0 to V - 1 that is not `ignore` makes the row's loss NaN. */
  readonly targets: Tensor<"i32">;
  /** Weight of the uniform distribution in the target, 0 to 1. */
  readonly smoothing: number;
  /** Rows with this target have loss 0 and no gradient. */
  readonly ignore: number;
  /** Output: the loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
  /** Output: the largest logit of each row, [rows]; an input of the backward pass. */
  readonly maximum: Tensor<"f32">;
  /** Output: the sum of exp(x - maximum) of each row, [rows]; an input of the backward pass. */
  readonly total: Tensor<"f32">;
}

/** dx = the gradient of the logits, given that of each row's loss. */
export interface CrossEntropyBackwardArgs extends Omit<CrossEntropyArgs, "loss"> {
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of the logits, in their shape. */
  readonly dx: Tensor<WideDType>;
}

/** loss [rows] = the mean of (x - target)^2 over each row. */
export interface MseArgs {
  /** [..., K], seen as rows of K. */
  readonly x: Tensor<WideDType>;
  /** Of the shape of x. */
  readonly target: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. */
  readonly loss: Tensor<"f32">;
}

/** dx = the gradient of x, given that of each row's loss. */
export interface MseBackwardArgs extends Omit<MseArgs, "loss"> {
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of x, in its shape. */
  readonly dx: Tensor<WideDType>;
}

/** out [..., D] = the rows of table [V, D] selected by ids; NaN for an id outside 0..V-1. */
export interface EmbeddingArgs {
  /** [V, D]. */
  readonly table: Tensor<WideDType>;
  /** Row indices, of any shape. */
  readonly ids: Tensor<"i32">;
  /** Output: the rows, [..., D], of the type of the table. */
  readonly out: Tensor<WideDType>;
}

/** out [V, D]: row v = the sum of grad's rows whose id is v, ascending, in f32. */
export interface EmbeddingBackwardArgs {
  /** The gradient of the rows, [..., D]. */
  readonly grad: Tensor<WideDType>;
  /** The row indices of the forward pass; those outside the table are ignored. */
  readonly ids: Tensor<"i32">;
  /** Output: the gradient of the table, [V, D]. */
  readonly out: Tensor<WideDType>;
}

/** out = the sum of the squares of x, [1]: chunks of 4096 first. */
export interface SquareSumArgs {
  /** An empty tensor has sum 0. */
  readonly x: Tensor<WideDType>;
  /** Output: the sum, [1]. */
  readonly out: Tensor<"f32">;
}

/** norm = the root of the sum of sums [n]; factor = min(1, maxNorm / (norm + 1e-6)); [1] each. */
export interface ClipFactorArgs {
  /** One sum of squares per tensor, [n]. */
  readonly sums: Tensor<"f32">;
  /** The maximum norm, an f32 of at least 0. */
  readonly maxNorm: number;
  /** Output: the norm of all tensors together, [1]. */
  readonly norm: Tensor<"f32">;
  /** Output: the factor that clips, [1]. */
  readonly factor: Tensor<"f32">;
}

/** Rolls the history of every slot with an amax in row 0, and computes its scale; both in place. */
export interface UpdateScalesArgs {
  /** [length, n] */
  readonly amaxHistory: Tensor<"f32">;
  /** [n] */
  readonly scale: Tensor<"f32">;
  /** The value that the amax is scaled to, an f32. */
  readonly scaledMax: number;
  /** Whether the newest amax is used, rather than the maximum of the history. */
  readonly mostRecent: boolean;
}

/** out = x + y, element by element; out may be x or y. */
export interface AddArgs {
  /** The first addend. */
  readonly x: Tensor<WideDType>;
  /** The second, of the shape of x. */
  readonly y: Tensor<WideDType>;
  /** Output: the sum in f32, rounded once to its type. */
  readonly out: Tensor<WideDType>;
}

/** out = x * factor, element by element; out may be x. */
export interface ScaledArgs {
  /** The multiplicand. */
  readonly x: Tensor<WideDType>;
  /** An f32. */
  readonly factor: number;
  /** Output: the product in f32, rounded once to its type. */
  readonly out: Tensor<WideDType>;
}

/** out = the softmax of scale * x over the last dimension of [..., R, C]. */
export interface SoftmaxArgs {
  /** [..., R, C]. */
  readonly x: Tensor<WideDType>;
  /** An f32. */
  readonly scale: number;
  /** Whether row i masks elements beyond i + (C - R). */
  readonly causal: boolean;
  /** Output: the softmax, in the shape of x; a masked element is 0. */
  readonly out: Tensor<WideDType>;
}

/** dx = the gradient of x, given y = softmax(x) and that of y. */
export interface SoftmaxBackwardArgs extends Pick<SoftmaxArgs, "scale" | "causal"> {
  /** The gradient of y, in its shape. */
  readonly grad: Tensor<WideDType>;
  /** The result of the forward pass. */
  readonly y: Tensor<WideDType>;
  /** Output: the gradient of x, in its shape. */
  readonly dx: Tensor<WideDType>;
}

/** out [K] = the sums of x's columns: rows ascending in chunks of 32, chunks ascending, in f32. */
export interface ColumnSumArgs {
  /** [..., K], seen as rows of K. */
  readonly x: Tensor<WideDType>;
  /** Output: the sums, rounded once to its type; 0 where there are no rows. */
  readonly out: Tensor<WideDType>;
}

/** The arguments of every optimizer step. `parameter` is updated in place. */
export interface StepArgs {
  /** The gradient, in the shape of the parameter. */
  readonly grad: Tensor<WideDType>;
  /** The f32 master, updated in place. */
  readonly parameter: Tensor<"f32">;
  /** Output: the new parameter, rounded. */
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
  /** Multiplies the gradient, [1]. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** If this is exactly 1, nothing is written; [1]. */
  readonly noop?: Tensor<"f32"> | undefined;
  /** An f32, as are all numbers below. */
  readonly learningRate: number;
  /** 0 for none. */
  readonly weightDecay: number;
}

/** A step of stochastic gradient descent, with momentum where there is a buffer. */
export interface SGDArgs extends StepArgs {
  /** The momentum buffer, updated in place; not read on the first step. */
  readonly m?: Tensor<"f32"> | undefined;
  /** The momentum factor; 0 without a buffer. */
  readonly momentum: number;
  /** 1 - dampening. */
  readonly undamped: number;
  /** Whether to use Nesterov momentum: the step follows the gradient plus momentum times the buffer. */
  readonly nesterov: boolean;
  /** Whether the buffer is initialized with the gradient. */
  readonly first: boolean;
}

/** A step of AdamW, or of Adam with weight decay in the gradient. */
export interface AdamWArgs extends StepArgs {
  /** The mean of the gradient, updated in place. */
  readonly m: Tensor<"f32">;
  /** The mean of the gradient's square, updated in place. */
  readonly v: Tensor<"f32">;
  /** The decay rate of `m`, at least 0 and below 1. */
  readonly beta1: number;
  /** The decay rate of `v`, at least 0 and below 1. */
  readonly beta2: number;
  /** 1 - beta^step. */
  readonly correction1: number;
  /** 1 - beta2^step. */
  readonly correction2: number;
  /** Added to the root of the corrected `v`. */
  readonly eps: number;
  /** Whether weight decay is decoupled from the gradient. */
  readonly decoupled: boolean;
}

/**
 * The arguments of each operation of a backend, by the operation's name. `run` and `supports` take one entry; outputs are
 * among them.
 */
export interface OpArgs {
  /** Values to codes, one rounding. */
  readonly encode: EncodeArgs;
  /** Codes to values. */
  readonly decode: DecodeArgs;
  /** The largest magnitude of a tensor. */
  readonly amax: AmaxArgs;
  /** Values to codes and scales. */
  readonly quantize: QuantizeArgs;
  /** `quantize` and `columnSum` of a gradient. */
  readonly biasGradQuantize: BiasGradQuantizeArgs;
  /** Codes and scales to values. */
  readonly dequantize: DequantizeArgs;
  /** The transpose of a matrix of any element type. */
  readonly transpose: TransposeArgs;
  /** Exchanges two dimensions of a tensor. */
  readonly swapAxes: SwapAxesArgs;
  /** Scales from one layout to another. */
  readonly relayout: RelayoutArgs;
  /** The random Hadamard transform of columns. */
  readonly hadamard: HadamardArgs;
  /** Digests of a chunk of all f32 bit patterns, encoded. */
  readonly sweep: SweepArgs;
  /** An activation. */
  readonly activation: ActivationArgs;
  /** The gradient of an activation's argument. */
  readonly activationBackward: ActivationBackwardArgs;
  /** A gated activation. */
  readonly gated: GatedArgs;
  /** The gradients of both halves of a gated activation's argument. */
  readonly gatedBackward: GatedBackwardArgs;
  /** An activation, plain or gated, or its gradient, quantized. */
  readonly activationQuantize: ActivationQuantizeArgs;
  /** LayerNorm or RMSNorm. */
  readonly norm: NormArgs;
  /** A norm, quantized. */
  readonly normQuantize: NormQuantizeArgs;
  /** The gradients of a norm's input and parameters. */
  readonly normBackward: NormBackwardArgs;
  /** Softmax cross-entropy of rows. */
  readonly crossEntropy: CrossEntropyArgs;
  /** The gradient of logits. */
  readonly crossEntropyBackward: CrossEntropyBackwardArgs;
  /** Softmax over the last dimension. */
  readonly softmax: SoftmaxArgs;
  /** The gradient of a softmax's argument. */
  readonly softmaxBackward: SoftmaxBackwardArgs;
  /** The sum of two tensors. */
  readonly add: AddArgs;
  /** A tensor times a number. */
  readonly scaled: ScaledArgs;
  /** Sums of columns. */
  readonly columnSum: ColumnSumArgs;
  /** Mean squared error of rows. */
  readonly mse: MseArgs;
  /** The gradient of its first argument. */
  readonly mseBackward: MseBackwardArgs;
  /** Rows of a table by id. */
  readonly embedding: EmbeddingArgs;
  /** The gradient of the table. */
  readonly embeddingBackward: EmbeddingBackwardArgs;
  /** The sum of squares of a tensor. */
  readonly squareSum: SquareSumArgs;
  /** The norm of several tensors, and the factor that clips it. */
  readonly clipFactor: ClipFactorArgs;
  /** New scales of delayed scaling from histories of amaxes. */
  readonly updateScales: UpdateScalesArgs;
  /** A step of stochastic gradient descent. */
  readonly sgd: SGDArgs;
  /** A step of AdamW or Adam. */
  readonly adamw: AdamWArgs;
  /** A matrix product, or a batch of them. */
  readonly gemm: GemmArgs;
}

/** The name of an operation of a backend. */
export type OpName = keyof OpArgs;
