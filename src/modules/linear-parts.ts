/** The parameters, options, inputs and results of a linear layer. */
import type { Backend } from "../backends/backend.js";
import { boolean, type Complete, callable, type OptionTable, optionsOf } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { BackwardPass } from "../tape/node.js";
import type { Gradient, Value } from "../tape/value.js";
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
  /** Initial weights. Default: approximately normal with standard deviation 0.023. The bias is initially 0. */
  readonly initMethod?: InitMethod | undefined;
  /** Whether the gradient of the weight is added to its f32 `mainGrad`. Default false. */
  readonly fuseWgradAccumulation?: boolean | undefined;
  /**
   * Whether the unquantized input, or what it is computed from, is kept for the backward pass and quantized again there.
   * Default false.
   */
  readonly saveOriginalInput?: boolean | undefined;
}

/** Options of one call of a linear layer. */
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

/** Throws `ArgumentError` for an unknown option of a call, or one outside its domain. */
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
  /** Keeps the unquantized input and makes its columnwise copy in the backward pass. */
  readonly saveOriginalInput: boolean;
  /** Adds the weight's gradient to its `mainGrad`. */
  readonly fuseWgradAccumulation: boolean;
}

/** The input of a linear layer, possibly computed by a preceding operation on demand. */
export interface LinearInput {
  /** [..., in]. */
  readonly shape: Shape;
  /** The activation type: that of the input, or the nominal type of a quantized input. */
  readonly dtype: WideDType;
  readonly backend: Backend;
  readonly requiresGrad: boolean;
  /** Computes or returns the input. Called at most once. */
  readonly value: () => Value;
  /** Whether `value` makes a new tensor, which this layer disposes of. */
  readonly makes: boolean;
  /**
   * Computes and quantizes the input in one pass; called again in the backward pass if the layer keeps no codes. Default: the
   * quantizer quantizes `value()`.
   */
  readonly quantize?: ((quantizer: Quantizer) => QuantizedTensor) | undefined;
}

/** The gradients of one call; undefined for those not requested. */
export interface LinearGradients {
  readonly x?: Gradient | undefined;
  readonly weight?: Tensor<WideDType> | undefined;
  readonly bias?: Tensor<WideDType> | undefined;
}

export interface LinearResult {
  readonly out: Value;
  /** `summed`: the values that the bias gradient sums if not `grad`, namely those that `grad` was quantized from. */
  readonly backward: (grad: Gradient, pass: BackwardPass, summed?: Tensor<WideDType>) => LinearGradients;
  /** The quantizer of the output gradient; absent if the backward pass does not quantize it. */
  readonly gradQuantizer?: () => Quantizer;
  /** Tensors made for the backward pass alone. */
  readonly saved: readonly Value[];
}

/** Which gradients the backward pass computes. */
export interface WantedGradients {
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
