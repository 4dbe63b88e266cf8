/** The arguments of optimizers, gradient norms and delayed scaling, and their tensors. */
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { GRAD, SCALAR, type Tensors } from "../tensors.js";

const STEP = { ...GRAD, "gradScale?": "checked", "noop?": "checked" } as const;

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

/** Sums the squares of a tensor. */
export const squareSum: Tensors<SquareSumArgs> = SCALAR;

/** Arguments of `pieceSums`: sums [ceil(n / 4096)] = the sum of the squares of each chunk of 4096 elements of x. */
export interface PieceSumsArgs {
  /** The values, n of them. */
  readonly x: Tensor<WideDType>;
  /** Output: the sums; none for an empty tensor. */
  readonly sums: Tensor<"f32">;
}

/** Sums the squares of each piece of a tensor: the first half of `squareSum`. */
export const pieceSums: Tensors<PieceSumsArgs> = { writes: { sums: "f32" }, reads: { x: "checked" } };

/** Arguments of `sumPieces`: out [1] = the sum of sums [n]. */
export interface SumPiecesArgs {
  /** One sum per piece, [n]. */
  readonly sums: Tensor<"f32">;
  /** Output: the sum, [1]. The sum of nothing is 0. */
  readonly out: Tensor<"f32">;
}

/** Adds the sums of pieces: the second half of `squareSum`. */
export const sumPieces: Tensors<SumPiecesArgs> = { writes: { out: "scalar" }, reads: { sums: "checked" } };

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

/** Computes the norm of several tensors, and the factor that clips it. */
export const clipFactor: Tensors<ClipFactorArgs> = {
  writes: { norm: "f32", factor: "f32" },
  reads: { sums: "checked" },
};

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

/** Computes new scales of delayed scaling from amax histories. */
export const updateScales: Tensors<UpdateScalesArgs> = {
  writes: { amaxHistory: "f32", scale: "f32" },
  reads: {},
};

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

/** Runs a step of stochastic gradient descent. */
export const sgd: Tensors<SGDArgs> = {
  writes: { parameter: "f32", "m?": "f32", "copy?": "half" },
  reads: STEP,
};

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

/** Runs a step of AdamW or Adam. */
export const adamw: Tensors<AdamWArgs> = {
  writes: { parameter: "f32", m: "f32", v: "f32", "copy?": "half" },
  reads: STEP,
};
