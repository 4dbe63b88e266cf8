/** A norm as the first step of a layer. */
import { currentRegion } from "../autocast/autocast.js";
import { ArgumentError } from "../errors.js";
import { add } from "../ops/add.js";
import { type Gradient, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput } from "./linear-parts.js";
import type { Module } from "./module.js";
import { type NormParts, normForward, normGradients, normParameters } from "./norm.js";

/** What that norm's parameters are called. */
export const NORM_NAMES = { gamma: "layerNormWeight", beta: "layerNormBias" } as const;

/** What a norm gives the product behind it, and the way back. */
export interface NormedInput {
  readonly input: LinearInput;
  readonly out: Tensor<WideDType>;
  readonly saved: readonly (Tensor | undefined)[];
  /** The gradients of x and of the norm's parameters, given those of the product's input and of the norm for others. */
  readonly backward: (
    grad: Gradient | undefined,
    returned?: Gradient,
  ) => readonly (Tensor<WideDType> | undefined)[];
}

/**
 * The norm of x as the input of a product. Delayed scaling casts the f32 values, any other recipe sees them rounded to
 * the type of x (numerics.md §7.3), and so does whoever the norm is returned to as well.
 */
export function normedInput(parts: NormParts, x: Variable, returned: boolean): NormedInput {
  const source = wideOf("the input of a norm", x.value);
  const region = currentRegion();
  const { shape, dtype } = source;
  const inputs = [x, ...normParameters(parts)];
  const casts = region?.enabled === true && region.recipe.kind === "delayed" && !returned;
  const normed = normForward(parts, source, casts ? "f32" : dtype);
  const { out, mean, rstd } = normed;
  const requiresGrad = inputs.some((each) => each.requiresGrad);
  return {
    input: { shape, dtype, requiresGrad, makes: !returned, value: () => out },
    out,
    saved: [mean, rstd],
    backward: (...grads) => {
      const [own, other] = grads.map((each) => each && wideOf("the gradient of a norm", each));
      const total = own && other ? add(own, other) : (own ?? other);
      return total ? normGradients(parts, source, normed, total) : inputs.map(() => undefined);
    },
  };
}

/** Throws `ArgumentError` where the gradient of a norm's result is to be quantized. */
export function requireWideGradient(module: Module, { fp8Grad }: LinearCall): void {
  if (fp8Grad)
    throw new ArgumentError(
      `${module.constructor.name}: fp8Grad is for a Linear behind another; here the norm's backward pass takes the gradient, wide`,
    );
}
