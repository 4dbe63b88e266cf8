/** The linear layer. */
import type { Backend } from "../backends/backend.js";
import {
  differentiableOne,
  type Value,
  type Variable,
  type VariableLike,
  variable,
} from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { isWide, type WideDType } from "../tensor/shape.js";
import { type LinearCall, type LinearParts, linearForward } from "./linear-core.js";
import { Module, type ModuleOptions, requireSizes } from "./module.js";
import { constantInit, type InitMethod, newParameter, normalInit, type Parameter } from "./parameter.js";
import { LinearQuantization } from "./quantization.js";
import { makeWeight } from "./quantized-init.js";

export interface LinearOptions extends ModuleOptions {
  /** Default true. */
  readonly bias?: boolean;
  /** Initial weights. Default: near normal with standard deviation 0.023; the bias begins as 0. */
  readonly initMethod?: InitMethod;
  /** The weight's gradient goes into its `mainGrad`, f32, added to what is there. Default false. */
  readonly fuseWgradAccumulation?: boolean;
  /** Keeps the input itself for the backward pass, and quantizes it again there. Default false. */
  readonly saveOriginalInput?: boolean;
}

/** The standard deviation of initial weights, TransformerEngine's. */
const INITIAL_STD = 0.023;

/**
 * y = x·weightᵀ + bias, weight [out, in], x [..., in]. In `autocast` x, weight and the gradient of y are quantized as
 * the recipe says, each in the directions its products need; the results have the type of x. Outside, x and the
 * parameters have one type. Throws `ShapeError`, `DTypeError` and `ArgumentError` for inputs that do not fit,
 * `UnsupportedError` for a recipe that the backend does not support.
 */
export class Linear extends Module {
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;
  readonly #parts: LinearParts;

  constructor(
    backend: Backend,
    readonly inFeatures: number,
    readonly outFeatures: number,
    options: LinearOptions = {},
  ) {
    super(backend, options);
    requireSizes("Linear", { inFeatures, outFeatures });
    this.#parts = linearParts(this.backend, [outFeatures, inFeatures], { ...options, random: this.random });
    this.weight = this.addParameter("weight", this.#parts.weight);
    this.bias = this.#parts.bias && this.addParameter("bias", this.#parts.bias);
  }

  protected override quantizations(): ReadonlyMap<string, LinearQuantization> {
    return new Map([["linear", this.#parts.quantization]]);
  }

  forward(input: VariableLike, call: LinearCall = {}): Variable {
    const x = variable(input);
    const { weight, bias } = this.#parts;
    const inputs = bias ? [x, weight, bias] : [x, weight];
    return differentiableOne(inputs, (grad) => {
      const dtype = activationType(x.value, this.dtype);
      const { value, shape, requiresGrad } = x;
      const given = { shape, dtype, requiresGrad, makes: false, value: () => value };
      const { out, backward, saved } = linearForward(this.#parts, given, call, grad);
      return {
        result: out,
        saved,
        backward: (dy, pass) => {
          const grads = backward(dy, pass);
          return [grads.x, grads.weight, grads.bias];
        },
      };
    });
  }
}

/** The type of activations: that of the input, the nominal one of a quantized input. */
function activationType(x: Value, fallback: WideDType): WideDType {
  if (x instanceof QuantizedTensor) return x.dtype;
  return isWide(x.dtype) ? x.dtype : fallback;
}

/** Weight [out, in], bias and quantization of a linear product. */
export function linearParts(
  backend: Backend,
  [outFeatures, inFeatures]: readonly [out: number, inward: number],
  options: LinearOptions & Required<Pick<ModuleOptions, "random">>,
): LinearParts {
  const { dtype = "bf16", random, initMethod = normalInit(INITIAL_STD) } = options;
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
