/**
 * The whole vocabulary: what each operation takes, as plain data. Outputs are preallocated tensors. Nothing
 * here knows of recipes or modules; src/ops/ validates and fills these in, a backend lowers them.
 */
import type { ACTIVATION, OVERFLOW, ROUNDING } from "../formats/contract.gen.js";
import type { RandomSource } from "../random.js";
import type { QuantizedCopy, QuantizeSpec, ScaleLayout } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { GemmArgs } from "./gemm-args.js";

/** A rounding mode of `encode` (numerics.md §1): IEEE 754's, to odd, or stochastic. */
export type RoundingName = keyof typeof ROUNDING;
/** What becomes of values beyond a format's largest (numerics.md §1): that value, `saturate`, or infinity or NaN, `nonfinite`. */
export type OverflowName = keyof typeof OVERFLOW;
/** An activation by its name in TransformerEngine and PyTorch; numerics.md §7.2 has the formulas. */
export type ActivationName = keyof typeof ACTIVATION;

/** out = codes of x * scale, one rounding. */
export interface EncodeArgs {
  readonly x: Tensor<WideDType>;
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
  readonly out: Tensor<WideDType>;
}

/** out[0] = max |x|, NaN ignored. */
export interface AmaxArgs {
  readonly x: Tensor<WideDType>;
  readonly out: Tensor<"f32">;
}

/** Quantizes x, seen as a matrix, into the copies given. */
export interface QuantizeArgs {
  readonly x: Tensor<WideDType>;
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
  readonly out: Tensor<WideDType>;
}

/** out [K,M] = x [M,K] transposed; any element type, FP4 included. */
export interface TransposeArgs {
  readonly x: Tensor;
  readonly out: Tensor;
}

/** out [outer, q, middle, p, inner] = x [outer, p, middle, q, inner], elements of whole bytes. */
export interface SwapAxesArgs {
  readonly x: Tensor;
  readonly sizes: readonly [outer: number, p: number, middle: number, q: number, inner: number];
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

/** out (u32 [2]) = the digest pair of one chunk of 2^24 of all f32 bit patterns, encoded. */
export interface SweepArgs {
  readonly word: number;
  readonly rounding: RoundingName;
  readonly overflow: OverflowName;
  readonly random: RandomSource;
  /** 0 to 255. */
  readonly chunk: number;
  readonly out: Tensor<"u32">;
}

/** out = act(x), element by element. */
export interface ActivationArgs {
  readonly x: Tensor<WideDType>;
  readonly kind: ActivationName;
  readonly out: Tensor<WideDType>;
}

/** out = grad * act'(x). */
export interface ActivationBackwardArgs extends ActivationArgs {
  readonly grad: Tensor<WideDType>;
}

/** Bounds of the clamped swiglu: min(a, limit), logistic argument alpha * a, gate clamped to +-limit plus offset. */
export interface SwigluClamp {
  readonly limit: number;
  readonly alpha: number;
  readonly offset: number;
}

/** out [rows, n] = act(a) * g for x [rows, 2n] = a | g. */
export interface GatedArgs {
  readonly x: Tensor<WideDType>;
  readonly kind: ActivationName;
  /** With kind silu: the clamped form. */
  readonly clamp?: SwigluClamp | undefined;
  readonly out: Tensor<WideDType>;
}

/** out [rows, 2n] = the gradients of a | g. */
export interface GatedBackwardArgs extends GatedArgs {
  readonly grad: Tensor<WideDType>;
}

/** Quantizes x, seen as a matrix, into the copies given; biasGrad [K] = the sums of x's columns (numerics.md §7.5). */
export interface BiasGradQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  readonly biasGrad: Tensor<WideDType>;
}

/** Quantizes act(x), its gated form, or the gradient of x under either (numerics.md §7.3), into the copies given. */
export interface ActivationQuantizeArgs extends Omit<QuantizeArgs, "noop"> {
  readonly kind: ActivationName;
  /** x [rows, 2n] is a | g. */
  readonly gated: boolean;
  /** Of the gated form with kind silu. */
  readonly clamp?: SwigluClamp | undefined;
  /** The gradient of the result: then that of x is quantized. */
  readonly grad?: Tensor<WideDType> | undefined;
}

/** LayerNorm, or RMSNorm without mean, of the rows of x. */
export interface NormArgs {
  readonly x: Tensor<WideDType>;
  readonly gamma: Tensor<WideDType>;
  readonly beta?: Tensor<WideDType> | undefined;
  readonly eps: number;
  readonly zeroCenteredGamma: boolean;
  readonly out: Tensor<WideDType>;
  readonly mean?: Tensor<"f32"> | undefined;
  readonly rstd: Tensor<"f32">;
}

/** Quantizes the norm of the rows of x (numerics.md §7.3) into the copies given; mean and rstd as `norm`. */
export interface NormQuantizeArgs extends Omit<QuantizeArgs, "noop">, Omit<NormArgs, "out"> {}

/** The gradients of `norm`; dbeta where there was a beta. */
export interface NormBackwardArgs {
  readonly grad: Tensor<WideDType>;
  readonly x: Tensor<WideDType>;
  readonly gamma: Tensor<WideDType>;
  readonly zeroCenteredGamma: boolean;
  readonly mean?: Tensor<"f32"> | undefined;
  readonly rstd: Tensor<"f32">;
  readonly dx: Tensor<WideDType>;
  readonly dgamma: Tensor<WideDType>;
  readonly dbeta?: Tensor<WideDType> | undefined;
}

/** Softmax cross-entropy of each row of logits; maximum and total are what the backward pass needs. */
export interface CrossEntropyArgs {
  readonly logits: Tensor<WideDType>;
  readonly targets: Tensor<"i32">;
  readonly smoothing: number;
  readonly ignore: number;
  readonly loss: Tensor<"f32">;
  readonly maximum: Tensor<"f32">;
  readonly total: Tensor<"f32">;
}

/** dx = the gradient of the logits, given that of each row's loss. */
export interface CrossEntropyBackwardArgs extends Omit<CrossEntropyArgs, "loss"> {
  readonly grad: Tensor<"f32">;
  readonly dx: Tensor<WideDType>;
}

/** loss [rows] = the mean of (x - target)^2 over each row. */
export interface MseArgs {
  readonly x: Tensor<WideDType>;
  readonly target: Tensor<WideDType>;
  readonly loss: Tensor<"f32">;
}

/** dx = the gradient of x, given that of each row's loss. */
export interface MseBackwardArgs extends Omit<MseArgs, "loss"> {
  readonly grad: Tensor<"f32">;
  readonly dx: Tensor<WideDType>;
}

/** out [..., D] = the rows of table [V, D] that ids name; NaN where there is no such row. */
export interface EmbeddingArgs {
  readonly table: Tensor<WideDType>;
  readonly ids: Tensor<"i32">;
  readonly out: Tensor<WideDType>;
}

/** out [V, D]: row v = the sum of grad's rows whose id is v, ascending, in f32. */
export interface EmbeddingBackwardArgs {
  readonly grad: Tensor<WideDType>;
  readonly ids: Tensor<"i32">;
  readonly out: Tensor<WideDType>;
}

/** out = the sum of the squares of x, [1]: chunks of 4096 first. */
export interface SquareSumArgs {
  readonly x: Tensor<WideDType>;
  readonly out: Tensor<"f32">;
}

/** norm = the root of the sum of sums [n]; factor = min(1, maxNorm / (norm + 1e-6)); [1] each. */
export interface ClipFactorArgs {
  readonly sums: Tensor<"f32">;
  readonly maxNorm: number;
  readonly norm: Tensor<"f32">;
  readonly factor: Tensor<"f32">;
}

/** Rolls the history of every slot that has an amax in row 0, and makes its scale; both in place. */
export interface UpdateScalesArgs {
  /** [length, n] */
  readonly amaxHistory: Tensor<"f32">;
  /** [n] */
  readonly scale: Tensor<"f32">;
  /** What the amax shall become, an f32. */
  readonly scaledMax: number;
  /** The amax is the one just recorded; otherwise the largest of the history. */
  readonly mostRecent: boolean;
}

/** out = x + y, element by element; out may be x or y. */
export interface AddArgs {
  readonly x: Tensor<WideDType>;
  readonly y: Tensor<WideDType>;
  readonly out: Tensor<WideDType>;
}

/** out = x * factor, element by element; out may be x. */
export interface ScaledArgs {
  readonly x: Tensor<WideDType>;
  /** An f32. */
  readonly factor: number;
  readonly out: Tensor<WideDType>;
}

/** out = the softmax of scale * x over the last dimension of [..., R, C]. */
export interface SoftmaxArgs {
  readonly x: Tensor<WideDType>;
  /** An f32. */
  readonly scale: number;
  /** Masks what lies beyond i + (C - R) in row i. */
  readonly causal: boolean;
  readonly out: Tensor<WideDType>;
}

/** dx = the gradient of x, given y = softmax(x) and that of y. */
export interface SoftmaxBackwardArgs extends Pick<SoftmaxArgs, "scale" | "causal"> {
  readonly grad: Tensor<WideDType>;
  readonly y: Tensor<WideDType>;
  readonly dx: Tensor<WideDType>;
}

/** out [K] = the sums of x's columns: rows ascending in chunks of 32, chunks ascending, in f32. */
export interface ColumnSumArgs {
  readonly x: Tensor<WideDType>;
  readonly out: Tensor<WideDType>;
}

/** What every optimizer step takes. `parameter` is updated in place. */
export interface StepArgs {
  readonly grad: Tensor<WideDType>;
  readonly parameter: Tensor<"f32">;
  /** Takes the new parameter, rounded. */
  readonly copy?: Tensor<"bf16" | "f16"> | undefined;
  /** Multiplies the gradient, [1]. */
  readonly gradScale?: Tensor<"f32"> | undefined;
  /** Nothing is written where this holds exactly 1, [1]. */
  readonly noop?: Tensor<"f32"> | undefined;
  /** Every number here and below is an f32. */
  readonly learningRate: number;
  readonly weightDecay: number;
}

/** A step of stochastic gradient descent, with momentum where there is a buffer. */
export interface SGDArgs extends StepArgs {
  /** The momentum buffer, updated in place; not read on the first step. */
  readonly m?: Tensor<"f32"> | undefined;
  readonly momentum: number;
  /** 1 - dampening. */
  readonly undamped: number;
  readonly nesterov: boolean;
  readonly first: boolean;
}

/** A step of AdamW, or of Adam with weight decay in the gradient. */
export interface AdamWArgs extends StepArgs {
  /** Means of the gradient and of its square, updated in place. */
  readonly m: Tensor<"f32">;
  readonly v: Tensor<"f32">;
  readonly beta1: number;
  readonly beta2: number;
  /** 1 - beta^step. */
  readonly correction1: number;
  readonly correction2: number;
  readonly eps: number;
  /** Weight decay apart from the gradient. */
  readonly decoupled: boolean;
}

/**
 * The arguments of each operation of a backend, by the operation's name. `run` and `supports` take one entry; outputs are
 * among them.
 */
export interface OpArgs {
  readonly encode: EncodeArgs;
  readonly decode: DecodeArgs;
  readonly amax: AmaxArgs;
  readonly quantize: QuantizeArgs;
  readonly biasGradQuantize: BiasGradQuantizeArgs;
  readonly dequantize: DequantizeArgs;
  readonly transpose: TransposeArgs;
  readonly swapAxes: SwapAxesArgs;
  readonly relayout: RelayoutArgs;
  readonly hadamard: HadamardArgs;
  readonly sweep: SweepArgs;
  readonly activation: ActivationArgs;
  readonly activationBackward: ActivationBackwardArgs;
  readonly gated: GatedArgs;
  readonly gatedBackward: GatedBackwardArgs;
  readonly activationQuantize: ActivationQuantizeArgs;
  readonly norm: NormArgs;
  readonly normQuantize: NormQuantizeArgs;
  readonly normBackward: NormBackwardArgs;
  readonly crossEntropy: CrossEntropyArgs;
  readonly crossEntropyBackward: CrossEntropyBackwardArgs;
  readonly softmax: SoftmaxArgs;
  readonly softmaxBackward: SoftmaxBackwardArgs;
  readonly add: AddArgs;
  readonly scaled: ScaledArgs;
  readonly columnSum: ColumnSumArgs;
  readonly mse: MseArgs;
  readonly mseBackward: MseBackwardArgs;
  readonly embedding: EmbeddingArgs;
  readonly embeddingBackward: EmbeddingBackwardArgs;
  readonly squareSum: SquareSumArgs;
  readonly clipFactor: ClipFactorArgs;
  readonly updateScales: UpdateScalesArgs;
  readonly sgd: SGDArgs;
  readonly adamw: AdamWArgs;
  readonly gemm: GemmArgs;
}

/** The name of an operation of a backend. */
export type OpName = keyof OpArgs;
