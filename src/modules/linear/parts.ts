/** The parameters, options, inputs and results of linear layers. */
import type { Region } from "../../autocast.js";
import type { Backend } from "../../backends/backend.js";
import { ArgumentError } from "../../errors.js";
import { boolean, type Complete, callable, type OptionTable, optionsOf } from "../../options.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { LayerPosition } from "../../recipes/role.js";
import type { BackwardPass } from "../../tape/node.js";
import type { Gradient, Value } from "../../tape/value.js";
import type { QuantizedTensor } from "../../tensor/quantized.js";
import { requireScalar } from "../../tensor/require.js";
import type { Owned } from "../../tensor/scope.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { DelayedGradients } from "../delayed-gradients.js";
import { MODULE_OPTIONS, type ModuleOptions } from "../module.js";
import {
  constantInit,
  type InitMethod,
  isDeferring,
  newParameter,
  normalInit,
  type Parameter,
  requireValues,
  uninitialized,
} from "../parameter.js";
import { LinearQuantization } from "../quantization.js";
import { makeWeight, withFp8Parameters } from "../quantized-init.js";
import { PARALLEL_OPTIONS, type ParallelOptions } from "../tensor-parallel/options.js";
import type { TensorParallel } from "../tensor-parallel/tensor-parallel.js";
import { divideBias, divideWeight, partShape, partValues } from "../tensor-parallel/weights.js";
import {
  type ParametersSplit,
  parametersSplit,
  requirePieces,
  type SplitRows,
  splitLayer,
  splitRows,
} from "./split-parameter.js";
import type { WeightUse } from "./weight-cache.js";

/** Options of `Linear`. All fields are optional. */
export interface LinearOptions extends ModuleOptions, ParallelOptions {
  /** Whether the layer has a bias. Default true. */
  readonly bias?: boolean | undefined;
  /**
   * Computes the initial weights. Default: approximately normal with mean 0 and standard deviation 0.023. The bias is initially
   * 0.
   */
  readonly initMethod?: InitMethod | undefined;
  /** Whether the gradient of the weight is added to the weight's f32 `mainGrad` instead of its `grad`. Default false. */
  readonly fuseWgradAccumulation?: boolean | undefined;
  /**
   * Whether the layer keeps its unquantized input for the backward pass and quantizes it again there. If a norm or an
   * activation precedes the product in the same module, the input of that norm or activation is kept instead. Default
   * false.
   */
  readonly saveOriginalInput?: boolean | undefined;
  /**
   * The names of the parameters that the rows of the weight are divided into, and of the bias: `["query", "key"]` gives
   * `queryWeight`, `keyWeight`, `queryBias` and `keyBias`, with equal numbers of rows; an object that maps names to numbers of
   * rows gives other numbers. Default: one parameter, `weight`, and one `bias`.
   */
  readonly parametersSplit?: ParametersSplit | undefined;
  /**
   * Whether `backwardDw` of the layer, or of a module that contains it, computes the gradient of the weight, which the backward
   * pass then leaves out. Neither the input nor the gradient of the result may be overwritten before that. Default false.
   */
  readonly delayWgradCompute?: boolean | undefined;
}

/** Options of one call of a linear layer. */
export interface LinearCall extends WeightUse {
  /** Whether the result is quantized. Default false. */
  readonly fp8Output?: boolean | undefined;
  /** Whether the gradient of the input is quantized. Default false. */
  readonly fp8Grad?: boolean | undefined;
}

/** Checks the fields of `LinearOptions`. */
export const LINEAR_OPTIONS: OptionTable<LinearOptions> = {
  ...MODULE_OPTIONS,
  ...PARALLEL_OPTIONS,
  bias: boolean,
  initMethod: callable,
  fuseWgradAccumulation: boolean,
  saveOriginalInput: boolean,
  delayWgradCompute: boolean,
  parametersSplit,
};

/** Checks the fields of `LinearCall`. */
export const LINEAR_CALL: OptionTable<LinearCall> = {
  isFirstMicrobatch: boolean,
  skipFp8WeightUpdate: requireScalar,
  fp8Output: boolean,
  fp8Grad: boolean,
};

/** Checks the options of a call. Throws `ArgumentError` for an unknown option or an invalid value. */
export const checkLinearCall = optionsOf<LinearCall>(LINEAR_CALL, "call");

/** The parts of a linear layer y = x·weightᵀ + bias. */
export interface LinearParts {
  readonly weight: Parameter;
  readonly bias?: Parameter | undefined;
  /** The names and rows of `parametersSplit`. `weight` and `bias` are then of the class `SplitParameter`. */
  readonly rows?: SplitRows | undefined;
  readonly quantization: LinearQuantization;
  /** Whether the layer keeps the unquantized input and quantizes it columnwise in the backward pass. */
  readonly saveOriginalInput: boolean;
  /** Whether the gradient of the weight is added to its `mainGrad`. */
  readonly fuseWgradAccumulation: boolean;
  /** How the layer is divided among ranks. Undefined if it is not divided. */
  readonly parallel: TensorParallel | undefined;
}

/** The input of a linear layer. An earlier operation of the same module may compute it on demand. */
export interface LinearInput {
  /** The shape of the input, [..., in]. */
  readonly shape: Shape;
  /** The activation type: the dtype of the input, or the nominal dtype of a quantized input. */
  readonly dtype: WideDType;
  readonly backend: Backend;
  readonly requiresGrad: boolean;
  /** Returns the input, computing it if needed. It is called at most once. */
  readonly value: () => Value;
  /** Whether `value` creates a new tensor. The layer disposes of it. */
  readonly createsValue: boolean;
  /**
   * Computes and quantizes the input in one pass. It is called again in the backward pass if the layer did not keep the
   * quantized input. Default: the quantizer quantizes `value()`.
   */
  readonly quantize?: ((quantizer: Quantizer) => QuantizedTensor) | undefined;
}

/** The gradients of one call. A gradient that was not requested is undefined. */
export interface LinearGradients {
  readonly x?: Gradient | undefined;
  readonly weight?: Tensor<WideDType> | undefined;
  readonly bias?: Tensor<WideDType> | undefined;
}

/** Facts about the gradient that a layer's backward pass receives. */
export interface GradientTraits {
  /**
   * The f32 tensor from which the gradient was quantized. Absent if the gradient is not quantized. The bias gradient is the sum
   * of its columns.
   */
  readonly biasSource?: Tensor<WideDType> | undefined;
  /** Whether the layer frees the gradient and `biasSource` as soon as it has read them. */
  readonly temporary?: boolean | undefined;
}

export interface LinearResult {
  readonly out: Value;
  /** Computes the gradients. */
  readonly backward: (grad: Gradient, pass: BackwardPass, traits?: GradientTraits) => LinearGradients;
  /** Returns the quantizer of the output gradient. Absent if the backward pass does not quantize it. */
  readonly gradQuantizer?: () => Quantizer;
  /** Whether the backward pass quantizes the gradient of the input (`fp8Grad`). Default false. */
  readonly quantizesGradInput?: boolean;
  /** The tensors that were created for the backward pass only. */
  readonly saved: readonly Value[];
}

/** Which gradients the backward pass computes: dgrad of the input, wgrad of the weight. */
export interface RequiredGradients {
  readonly dgrad: boolean;
  readonly wgrad: boolean;
}

/** A call of a linear layer in an enabled autocast region. */
export interface QuantizedCall {
  readonly call: LinearCall;
  readonly region: Region;
  readonly required: RequiredGradients;
  /**
   * Equal to `required`, except in the first run of a recomputed region. That run keeps nothing (`required` is false), but its
   * second run will need these gradients.
   */
  readonly tracked: RequiredGradients;
}

/** The standard deviation of initial weights, as in TransformerEngine. */
export const INITIAL_STD = 0.023;

/** How a linear layer is divided among ranks. */
export interface Division {
  /** The name of the layer for messages. */
  readonly caller: string;
  /** Undefined if one rank has the full layer. */
  readonly parallel: TensorParallel | undefined;
  /** Returns the name of the product in its model, and the kind of layer, for the quantizers of custom recipes. */
  readonly position: () => LayerPosition;
  /** The name of the argument whose value is divided, for messages. Default: its name in `Linear`. */
  readonly size?: string;
}

/** Returns the names and rows of `parametersSplit`, or undefined without it. Throws for options that exclude it. */
function readSplit(
  caller: string,
  { parametersSplit: split, fuseWgradAccumulation, delayWgradCompute }: LinearOptions,
  outFeatures: number,
): SplitRows | undefined {
  if (!split) return undefined;
  const conflictingOption = fuseWgradAccumulation
    ? "fuseWgradAccumulation"
    : delayWgradCompute && "delayWgradCompute";
  if (conflictingOption)
    throw new ArgumentError(
      `${caller}: ${conflictingOption} computes the gradient of one weight, and parametersSplit has several parameters; leave one of them out`,
    );
  return splitRows(caller, split, outFeatures);
}

/** Throws `ArgumentError` for a weight that cannot be created without memory. */
function requireDeferrable(caller: string, rows: SplitRows | undefined): void {
  const reason = rows
    ? "the parameters of parametersSplit share memory"
    : withFp8Parameters()
      ? "quantizedModelInit quantizes the initial weights"
      : undefined;
  if (reason)
    throw new ArgumentError(
      `${caller}: ${reason}, and onMetaDevice gives weights no memory; leave one of them out`,
    );
}

/**
 * Creates the weight [out, in], the bias and the quantization state of a linear layer. If the layer is divided, it creates this
 * rank's part, which is a slice of the values that a single rank would create. The parameters are added to `created`. Throws
 * `ShapeError` if a divided size is not a multiple of the number of ranks.
 */
export function linearParts(
  backend: Backend,
  fullShape: readonly [out: number, inward: number],
  options: LinearOptions & Complete<ModuleOptions>,
  { caller, parallel, size, position }: Division,
  created: Owned[],
): LinearParts {
  const { dtype, random, initMethod = normalInit(INITIAL_STD) } = options;
  const rows = readSplit(caller, options, fullShape[0]);
  if (rows) requirePieces({ caller, rows, parallel });
  const shape = parallel ? partShape(caller, parallel, fullShape, size) : fullShape;
  const partInit: InitMethod = () => {
    const values = initMethod(random, fullShape);
    return parallel
      ? partValues(parallel, requireValues("initMethod", "its result", values, fullShape), fullShape)
      : values;
  };
  if (isDeferring()) requireDeferrable(caller, rows);
  const makePart = (): Parameter => {
    if (isDeferring()) return newParameter(backend, shape, partInit, { dtype, random });
    const part = partInit(random, shape);
    return makeWeight(backend, part, shape, { dtype, random, shard: parallel?.shard("weight") });
  };
  const weight =
    initMethod === uninitialized ? newParameter(backend, shape, initMethod, { dtype, random }) : makePart();
  created.push(weight);
  weight.fusesAccumulation = options.fuseWgradAccumulation ?? false;
  if (options.delayWgradCompute) weight.delayedGradients = new DelayedGradients();
  const [outFeatures] = shape;
  const bias =
    options.bias === false
      ? undefined
      : newParameter(backend, [outFeatures], constantInit(0), { dtype, random });
  if (bias) created.push(bias);
  if (parallel) {
    divideWeight(weight, parallel, fullShape);
    if (bias && parallel.mode === "column") divideBias(bias, weight);
  }
  const split = rows && splitLayer({ weight, bias }, fullShape[1], { caller, rows, parallel }, created);
  return {
    parallel,
    weight: split?.weight ?? weight,
    bias: split ? split.bias : bias,
    rows,
    quantization: new LinearQuantization(backend, random, parallel, position),
    saveOriginalInput: options.saveOriginalInput ?? false,
    fuseWgradAccumulation: weight.fusesAccumulation,
  };
}
