/** A norm as the first operation of a layer. */
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

/** The names of that norm's parameters. */
export const NORM_NAMES = { gamma: "layerNormWeight", beta: "layerNormBias" } as const;

/** A norm as the input of a following product, and its backward pass. */
export interface NormedInput {
  readonly input: LinearInput;
  /** The norm's result in the type of x. */
  readonly out: () => Tensor<WideDType>;
  /** The tensors to save for the backward pass; call it after the product. */
  readonly saved: () => readonly (Tensor | undefined)[];
  /**
   * The gradients of x and of the norm's parameters. `grad` comes from the product; `returned` is that of the norm's result
   * where it is returned as well.
   */
  readonly backward: (
    grad: Gradient | undefined,
    returned?: Gradient,
  ) => readonly (Tensor<WideDType> | undefined)[];
}

/**
 * The norm of x as the input of a product. A recipe quantizes its f32 values (numerics.md §7.3). If the norm is also returned,
 * and with custom quantizers, the result rounded to the type of x is quantized, as in TransformerEngine.
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

/** Throws `ArgumentError` for `fp8Grad` of a layer that begins with a norm. */
export function requireWideGradient(module: Module, { fp8Grad }: LinearCall): void {
  if (fp8Grad)
    throw new ArgumentError(
      `${module.constructor.name}: fp8Grad is for a Linear that follows another; here the norm's backward pass takes the gradient in a wide type; leave it out`,
    );
}
