/** The norm that a layer begins with. */
import type { Region } from "../autocast.js";
import { ArgumentError } from "../errors.js";
import { add } from "../ops/elementwise/operators.gen.js";
import type { NormResult, NormStatistics } from "../ops/rows/norm.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import { type Gradient, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { requireTensor } from "../tensor/require.js";
import type { WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import type { LinearCall, LinearInput } from "./linear/parts.js";
import type { Module } from "./module.js";
import { type NormParts, normArguments, normForward, normGradients, normParameters } from "./norm.js";

/** The names of the norm's parameters in the layer. */
export const NORM_NAMES = { gamma: "layerNormWeight", beta: "layerNormBias" } as const;

/** A norm whose result is the input of a following product, and the backward pass of that norm. */
export interface NormedInput {
  readonly input: LinearInput;
  /** Returns the norm's result in the dtype of x. */
  readonly out: () => Tensor<WideDType>;
  /** Returns the statistics that the backward pass needs. Call it after the product, which may compute them. */
  readonly saved: () => readonly (Tensor | undefined)[];
  /**
   * Computes the gradients of x and of the norm's parameters. `grad` is the gradient from the product. `returnedGrad` is the
   * gradient from other uses of the norm's result, if the layer has returned it.
   */
  readonly backward: (
    grad: Gradient | undefined,
    returnedGrad?: Gradient,
  ) => readonly (Tensor<WideDType> | undefined)[];
}

/**
 * Returns the norm of x as the input of a product. `region` is the region of that product. `isReturned` says whether the layer
 * returns the norm's result too. Under a standard recipe the norm is fused with its quantization, and the quantizer decides
 * whether it reads f32 or rounded values (numerics.md §7.3). With custom quantizers or a `backwardOverride`, or if
 * `isReturned`, the norm's result is first rounded to the dtype of x, as in TransformerEngine.
 */
export function normedInput(
  normParts: NormParts,
  x: Variable,
  isReturned: boolean,
  region: Region | undefined,
): NormedInput {
  const source = wideOf("the input of a norm", x.value);
  const { shape, dtype, backend } = source;
  const parameters = normParameters(normParts);
  for (const { localValue } of parameters)
    if (localValue instanceof Tensor) requireTensor("norm", "its parameter", localValue);
  const inputs = [x, ...parameters];
  const fuses = region?.enabled === true && fusesQuantization(region.recipe) && !isReturned;
  let norm: NormResult | undefined;
  let savedStatistics: NormStatistics | undefined;
  const value = (): Tensor<WideDType> => {
    norm ??= normForward(normParts, source);
    savedStatistics ??= norm;
    return norm.out;
  };
  const quantize = (quantizer: Quantizer): QuantizedTensor => {
    const { out, ...statistics } = quantizer.normQuantize(source, normArguments(normParts));
    if (savedStatistics) {
      for (const each of [statistics.mean, statistics.rstd]) each?.dispose();
    } else savedStatistics = statistics;
    return out;
  };
  const requiresGrad = inputs.some((each) => each.requiresGrad);
  return {
    input: {
      shape,
      dtype,
      backend,
      requiresGrad,
      createsValue: !isReturned,
      value,
      ...(fuses ? { quantize } : {}),
    },
    out: value,
    saved: () => [savedStatistics?.mean, savedStatistics?.rstd],
    backward: (...grads) => {
      const [grad, returnedGrad] = grads.map((each) => each && wideOf("the gradient of a norm", each));
      const total = grad && returnedGrad ? add(grad, returnedGrad) : (grad ?? returnedGrad);
      return total
        ? normGradients(normParts, source, savedStatistics as NormStatistics, total)
        : inputs.map(() => undefined);
    },
  };
}

/**
 * Whether norms and activations are computed and quantized in one pass, if their result is not needed otherwise. With custom
 * quantizers or a `backwardOverride` they are rounded to the activation type first, as in TransformerEngine.
 */
export function fusesQuantization({ kind, backwardOverride }: Recipe): boolean {
  return kind !== "custom" && backwardOverride === "none";
}

/** Throws `ArgumentError` if a layer that begins with a norm is called with `fp8Grad`. */
export function requireWideGradient(module: Module, { fp8Grad }: LinearCall): void {
  if (fp8Grad)
    throw new ArgumentError(
      `${module.constructor.name}: fp8Grad quantizes the gradient of the input, and the norm's backward pass needs it in f32, bf16 or f16; leave it out`,
    );
}
