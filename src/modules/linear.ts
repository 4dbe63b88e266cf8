/** The linear layer. */
import type { Backend } from "../backends/backend.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { linearForward } from "./linear-core.js";
import {
  checkLinearCall,
  LINEAR_OPTIONS,
  type LinearCall,
  type LinearOptions,
  type LinearParts,
  linearParts,
} from "./linear-parts.js";
import { Module, requireSizes } from "./module.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";

const checkOptions = optionsOf(LINEAR_OPTIONS);

/**
 * y = x·weightᵀ + bias, weight [out, in], x [..., in]. In an autocast region, x, weight and the gradient of y are quantized as
 * the recipe says, each in the directions its products need; results have the type of x. Outside, x and the parameters must
 * have one type.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class Linear extends Module {
  /** [N, K]. */
  readonly weight: Parameter;
  /** [N]. Undefined where the layer was made without one. */
  readonly bias: Parameter | undefined;
  readonly #parts: LinearParts;

  constructor(
    backend: Backend,
    /** K, the last dimension of the input. */
    readonly inFeatures: number,
    /** N, the last dimension of the result. */
    readonly outFeatures: number,
    options: LinearOptions = {},
  ) {
    super(backend, checkOptions("Linear", options));
    requireSizes("Linear", { inFeatures, outFeatures });
    const { dtype, random } = this;
    this.#parts = linearParts(backend, [outFeatures, inFeatures], { ...options, dtype, random });
    this.weight = this.addParameter("weight", this.#parts.weight);
    this.bias = this.#parts.bias && this.addParameter("bias", this.#parts.bias);
  }

  /** The quantization of the product, under the name `linear`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["linear", this.#parts.quantization]]);
  }

  /**
   * input·weightᵀ + bias, [..., N], for an input [..., K]: under the recipe of the autocast region, or in high precision. NaN
   * and infinities behave as in `gemm`. An input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer or its recipe, `ArgumentError` for a call
   * that the recipe does not take, `UnsupportedError` where the backend does not; nothing has changed then.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    const x = variable(input);
    checkLinearCall("Linear", call);
    const { weight, bias } = this.#parts;
    const inputs = bias ? [x, weight, bias] : [x, weight];
    return differentiableOne(inputs, (grad) => {
      const { value, shape, requiresGrad } = x;
      const { dtype, backend } =
        value instanceof QuantizedTensor ? value : wideOf("linear: the input", value);
      const given = { shape, dtype, backend, requiresGrad, makes: false, value: () => value };
      const { out, backward, saved } = linearForward(this.#parts, given, call, grad);
      return {
        result: out,
        saved,
        quantized: { gradOutput: true, gradInput: call.fp8Grad === true },
        backward: (dy, pass) => {
          const grads = backward(dy, pass);
          return [grads.x, grads.weight, grads.bias];
        },
      };
    });
  }
}
