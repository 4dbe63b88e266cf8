/** What a linear layer is made of, what it is given and what it gives. */
import type { Backend } from "../backends/backend.js";
import { boolean, type Complete, callable, type OptionTable, optionsOf } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Gradient, Value } from "../tape/value.js";
import type { BackwardPass } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar } from "../tensor/require.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { MODULE_OPTIONS, type ModuleOptions } from "./module.js";
import { constantInit, type InitMethod, newParameter, normalInit, type Parameter } from "./parameter.js";
import { LinearQuantization, type WeightUse } from "./quantization.js";
import { makeWeight } from "./quantized-init.js";

/** What `Linear` takes; every field may be left out. */
export interface LinearOptions extends ModuleOptions {
  /** Default true. */
  readonly bias?: boolean | undefined;
  /** Initial weights. Default: near normal with standard deviation 0.023; the bias begins as 0. */
  readonly initMethod?: InitMethod | undefined;
  /** The weight's gradient goes into its `mainGrad`, f32, added to what is there. Default false. */
  readonly fuseWgradAccumulation?: boolean | undefined;
  /** Keeps the input itself, or what it is made of, for the backward pass and quantizes it again there. Default false. */
  readonly saveOriginalInput?: boolean | undefined;
}

/** What a call of a linear layer may ask for. */
export interface LinearCall extends WeightUse {
  /** The result is quantized. Default false. */
  readonly fp8Output?: boolean | undefined;
  /** The gradient of the input is quantized. Default false. */
  readonly fp8Grad?: boolean | undefined;
}

/** The rows of `LinearOptions`. */
export const LINEAR_OPTIONS: OptionTable<LinearOptions> = {
  ...MODULE_OPTIONS,
  bias: boolean,
  initMethod: callable,
  fuseWgradAccumulation: boolean,
  saveOriginalInput: boolean,
};

/** Throws for what is no way to call a linear layer. */
export const checkLinearCall = optionsOf<LinearCall>({
  isFirstMicrobatch: boolean,
  skipFp8WeightUpdate: requireScalar,
  fp8Output: boolean,
  fp8Grad: boolean,
});

/** A linear layer: y = x·weightᵀ + bias. */
export interface LinearParts {
  readonly weight: Parameter;
  readonly bias?: Parameter | undefined;
  readonly quantization: LinearQuantization;
  /** Keeps the input as it came and quantizes its other copy in the backward pass. */
  readonly saveOriginalInput: boolean;
  /** Adds the weight's gradient to its `mainGrad`. */
  readonly fuseWgradAccumulation: boolean;
}

/** The input of a linear layer, which a step before may make for it. */
export interface LinearInput {
  /** [..., in]. */
  readonly shape: Shape;
  /** The type activations have: that of the input, the nominal one of a quantized input. */
  readonly dtype: WideDType;
  readonly backend: Backend;
  readonly requiresGrad: boolean;
  /** The input itself. Called once where it is needed. */
  readonly value: () => Value;
  /** Whether `value` makes a tensor that is this layer's to dispose of. */
  readonly makes: boolean;
  /**
   * Quantizes what `value` would give in a way of its own, in one pass; again in the backward pass where the layer keeps no
   * codes. Default: the quantizer's.
   */
  readonly quantize?: ((quantizer: Quantizer) => QuantizedTensor) | undefined;
}

/** The gradients of one call; undefined where nobody asked. */
export interface LinearGradients {
  readonly x?: Gradient | undefined;
  readonly weight?: Tensor<WideDType> | undefined;
  readonly bias?: Tensor<WideDType> | undefined;
}

export interface LinearResult {
  readonly out: Value;
  /** `summed` is what the bias gradient sums where that is not `grad`: the values that `grad` was quantized from. */
  readonly backward: (grad: Gradient, pass: BackwardPass, summed?: Tensor<WideDType>) => LinearGradients;
  /** Quantizes the gradient that the backward pass is given; absent where it does not want that. */
  readonly gradQuantizer?: () => Quantizer;
  /** What was made for the backward pass alone. */
  readonly saved: readonly Value[];
}

/** Which gradients a backward pass will want. */
export interface Wanted {
  readonly dgrad: boolean;
  readonly wgrad: boolean;
}

/** The standard deviation of initial weights, TransformerEngine's. */
const INITIAL_STD = 0.023;

/** Weight [out, in], bias and quantization of a linear product. */
export function linearParts(
  backend: Backend,
  [outFeatures, inFeatures]: readonly [out: number, inward: number],
  options: LinearOptions & Complete<ModuleOptions>,
): LinearParts {
  const { dtype, random, initMethod = normalInit(INITIAL_STD) } = options;
  const shape = [outFeatures, inFeatures];
  const weight = makeWeight(backend, initMethod(random, shape), shape, { dtype, random });
  return {
    weight,
    bias:
      options.bias === false
        ? undefined
        : newParameter(backend, [outFeatures], constantInit(0), { dtype, random }),
    quantization: new LinearQuantization(backend, random),
    saveOriginalInput: options.saveOriginalInput ?? false,
    fuseWgradAccumulation: options.fuseWgradAccumulation ?? false,
  };
}
