/** The linear layer. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { orDispose } from "../tensor/scope.js";
import { linearForward } from "./linear/forward.js";
import {
  checkLinearCall,
  LINEAR_OPTIONS,
  type LinearCall,
  type LinearOptions,
  type LinearParts,
  linearParts,
} from "./linear/parts.js";
import { returnedBias, withoutBias } from "./linear/returned-bias.js";
import { leafGradients, leavesOf, namedLeaves, updateSplit } from "./linear/split-parameter.js";
import { Module, requireSizes } from "./module.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";
import { dividedGroup, overlapOf } from "./tensor-parallel/options.js";
import { TensorParallel } from "./tensor-parallel/tensor-parallel.js";

const checkOptions = optionsOf(LINEAR_OPTIONS);

/**
 * Computes y = x·weightᵀ + bias, with weight [out, in] and x [..., in].
 *
 * In an autocast region, x, weight and the gradient of y are quantized as the recipe says, along each dimension that a product
 * needs. The results have the dtype of x. Outside a region, x and the parameters must have the same dtype. With `group`, each
 * rank has a part of the weights (docs/distributed.md).
 *
 * @throws `ShapeError` for a size that is not divisible by the number of ranks, and for `parametersSplit` with another number of
 * rows, `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer, `DTypeError`
 * for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class Linear extends Module {
  static {
    guardReceivers(this);
  }

  /**
   * The weight, [N, K]. With `parametersSplit` it holds the rows of all parameters. These parameters have the gradients, and this
   * tensor is not one of `parameters()`.
   */
  readonly weight: Parameter;
  /** The bias, [N]. With `parametersSplit` it is divided as `weight`. Undefined with the option `bias: false`. */
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
    const ownOptions = checkOptions("Linear", options);
    super(backend, ownOptions);
    requireSizes("Linear", { inFeatures, outFeatures });
    const { dtype, random } = this;
    const group = dividedGroup("Linear", backend, ownOptions);
    const { parallelMode: mode, sequenceParallel = false, pieces } = ownOptions;
    const overlap = overlapOf("Linear", ownOptions);
    const parallel = group && mode && new TensorParallel(group, mode, sequenceParallel, pieces, overlap);
    const position = () => ({ moduleType: "linear", name: this.pathOf("linear") }) as const;
    const division = { caller: "Linear", parallel, position };
    const linearOptions = { ...ownOptions, dtype, random };
    this.#parts = orDispose((created) =>
      linearParts(backend, [outFeatures, inFeatures], linearOptions, division, created),
    );
    this.weight = this.#parts.weight;
    this.bias = this.#parts.bias;
    for (const [name, parameter] of namedLeaves(this.#parts)) this.addParameter(name, parameter);
  }

  /** Frees the parameters, gradients and the quantization state. */
  override dispose(): void {
    super.dispose();
    for (const each of [this.weight, this.bias]) each?.dispose();
  }

  /** Returns the quantization state of the product, under the name `linear`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["linear", this.#parts.quantization]]);
  }

  /**
   * Returns input·weightᵀ + bias [..., N] for an input [..., K], computed under the recipe of the autocast region, or else in
   * high precision. NaN and infinities propagate as in `gemm`. An input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer or its recipe, `ArgumentError` for call
   * options that the recipe does not allow, `UnsupportedError` for a recipe that the backend does not support. In each case
   * nothing has changed.
   * @throws `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    return this.#run(input, call, this.#parts);
  }

  /**
   * Runs `forward` without adding the bias and returns the bias too, in the dtype of the result, so that a later operation can
   * add it. It is undefined if the layer has none. TransformerEngine's `return_bias`.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBias(
    input: VariableLike,
    call: LinearCall = {},
  ): readonly [out: Variable, bias: Variable | undefined] {
    const [out, bias] = composed(() => {
      const result = this.#run(input, call, withoutBias(this.#parts));
      return [result, ...returnedBias(this.#parts, result)];
    });
    return [out as Variable, bias];
  }

  #run(input: VariableLike, call: LinearCall, parts: LinearParts): Variable {
    const x = variableOf("Linear", "input", input);
    const ownCall = checkLinearCall("Linear", call);
    const { weight, bias } = parts;
    const inputs = [x, ...leavesOf(weight), ...leavesOf(bias)];
    return differentiableOne(inputs, (grad) => {
      updateSplit(weight, bias);
      const { value, shape, requiresGrad } = x;
      const { dtype, backend } =
        value instanceof QuantizedTensor ? value : wideOf("linear: the input", value);
      const operand = { shape, dtype, backend, requiresGrad, createsValue: false, value: () => value };
      const { out, backward, saved, quantizesGradInput } = linearForward(parts, operand, ownCall, grad);
      return {
        result: out,
        saved,
        quantized: {
          gradOutput: !parts.parallel?.gathers("gradOutput"),
          gradInput: quantizesGradInput === true,
        },
        backward: (dy, pass) => {
          const grads = backward(dy, pass);
          return [grads.x, ...leafGradients(weight, grads.weight), ...leafGradients(bias, grads.bias)];
        },
      };
    });
  }
}
