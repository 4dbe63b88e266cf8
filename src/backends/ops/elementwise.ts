/** The arguments of activations, dropout and the special-function unit, and their tensors. */
import type { ACTIVATION } from "../../formats/contract.gen.js";
import type { SpecialFunctionName } from "../../formats/special-functions.js";
import type { RandomSource } from "../../random.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { OUT, OUT_OF_GRAD, type Tensors, X } from "../tensors.js";

/** The name of an activation, as in TransformerEngine and PyTorch. numerics.md §7.2 has the formulas. */
export type ActivationName = keyof typeof ACTIVATION;

/** Arguments of `activation`: out = act(x) for each element. */
export interface ActivationArgs {
  /** The argument of the activation function. */
  readonly x: Tensor<WideDType>;
  /** The activation function. */
  readonly kind: ActivationName;
  /** Output: the result, in the shape of x, rounded once to its dtype. */
  readonly out: Tensor<WideDType>;
}

/** Applies an activation function. */
export const activation: Tensors<ActivationArgs> = OUT;

/** Arguments of `activationBackward`: out = grad * act'(x) for each element. */
export interface ActivationBackwardArgs extends ActivationArgs {
  /** The gradient of the activation's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
}

/** Computes the gradient of an activation's argument. */
export const activationBackward: Tensors<ActivationBackwardArgs> = { ...OUT_OF_GRAD, inPlace: ["x"] };

/** Arguments of `dropout`: out = 0 for elements that are dropped, else x / (1 - probability). */
export interface DropoutArgs {
  /** The elements. */
  readonly x: Tensor<WideDType>;
  /** The probability that an element is dropped, from 0 to below 1. */
  readonly probability: number;
  /** The random bits, selected by element index. */
  readonly random: RandomSource;
  /** Output: the result, in the shape of x, rounded once to its dtype. */
  readonly out: Tensor<WideDType>;
}

/** Drops elements at random, and scales the others. */
export const dropout: Tensors<DropoutArgs> = OUT;

/** Arguments of `specialFunction`: out = f(x), or f(x, y), for each element. */
export interface SpecialFunctionArgs {
  /** The arguments, in the dtype of the instruction. */
  readonly x: Tensor<WideDType>;
  /** The instruction, by its name in PTX, or the math function. */
  readonly function: SpecialFunctionName;
  /** The second arguments of a function of two, in the shape of x. */
  readonly y?: Tensor<"f32"> | undefined;
  /** Output: the results, in the shape and dtype of x. */
  readonly out: Tensor<WideDType>;
}

/** Computes an instruction of the special-function unit, or a math function of CUDA. */
export const specialFunction: Tensors<SpecialFunctionArgs> = {
  writes: { out: "as x" },
  reads: { ...X, "y?": "checked" },
};

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

/** Applies a gated activation. */
export const gated: Tensors<GatedArgs> = OUT;

/** Arguments of `gatedBackward`: out [rows, 2n] has the gradient of a in its left half and of g in its right half. */
export interface GatedBackwardArgs extends GatedArgs {
  /** The gradient of act(a) * g, [rows, n]. */
  readonly grad: Tensor<WideDType>;
}

/** Computes the gradients of both halves of a gated activation's argument. */
export const gatedBackward: Tensors<GatedBackwardArgs> = OUT_OF_GRAD;
