/** A norm as the first step of a layer. */
import { currentRegion } from "../autocast/autocast.js";
import { ArgumentError } from "../errors.js";
import { add } from "../ops/elementwise/add.js";
import type { NormResult, NormStatistics } from "../ops/rows/norm.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { type Gradient, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { requireTensor } from "../tensor/require.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput } from "./linear-parts.js";
import type { Module } from "./module.js";
import { type NormParts, normArguments, normForward, normGradients, normParameters } from "./norm.js";

/** What that norm's parameters are called. */
export const NORM_NAMES = { gamma: "layerNormWeight", beta: "layerNormBias" } as const;

/** What a norm gives the product behind it, and the way back. */
export interface NormedInput {
  readonly input: LinearInput;
  /** The norm's result in the type of x. */
  readonly out: () => Tensor<WideDType>;
  /** What the way back takes, once the product has been formed. */
  readonly saved: () => readonly (Tensor | undefined)[];
  /** The gradients of x and of the norm's parameters, given those of the product's input and of the norm for others. */
  readonly backward: (
    grad: Gradient | undefined,
    returned?: Gradient,
  ) => readonly (Tensor<WideDType> | undefined)[];
}

/**
 * The norm of x as the input of a product. A recipe quantizes it as it is computed (numerics.md §7.3). Where the norm is
 * returned as well, and under quantizers of one's own, what is quantized is a tensor of the type of x, as in TransformerEngine.
 */
export function normedInput(parts: NormParts, x: Variable, returned: boolean): NormedInput {
  const source = wideOf("the input of a norm", x.value);
  const region = currentRegion();
  const { shape, dtype, backend } = source;
  const parameters = normParameters(parts);
  for (const { value } of parameters) requireTensor("norm", "its parameter", value);
  const inputs = [x, ...parameters];
  const fuses = region?.enabled === true && region.recipe.kind !== "custom" && !returned;
  let made: NormResult | undefined;
  let kept: NormStatistics | undefined;
  const value = (): Tensor<WideDType> => {
    made ??= normForward(parts, source);
    kept ??= made;
    return made.out;
  };
  const quantize = (quantizer: Quantizer): QuantizedTensor => {
    const { out, ...statistics } = quantizer.normQuantize(source, normArguments(parts));
    kept ??= statistics;
    return out;
  };
  const requiresGrad = inputs.some((each) => each.requiresGrad);
  return {
    input: { shape, dtype, backend, requiresGrad, makes: !returned, value, ...(fuses ? { quantize } : {}) },
    out: value,
    saved: () => [kept?.mean, kept?.rstd],
    backward: (...grads) => {
      const [own, other] = grads.map((each) => each && wideOf("the gradient of a norm", each));
      const total = own && other ? add(own, other) : (own ?? other);
      return total
        ? normGradients(parts, source, kept as NormStatistics, total)
        : inputs.map(() => undefined);
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
