/** The module of a norm followed by a linear layer. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { isArray, type OptionTable, optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { differentiable, type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { orDispose } from "../tensor/scope.js";
import { snakeCase } from "../text/snake-case.js";
import { layerRegion } from "./layer-region.js";
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
import {
  NORM_OPTIONS,
  type Normalization,
  type NormModuleOptions,
  type NormParts,
  normalizationName,
  normForm,
  normParameters,
  normParts,
} from "./norm.js";
import { type NormedCall, normedCallOf, type ReturnedResults } from "./normed-call.js";
import { NORM_NAMES, normedInput, requireWideGradient } from "./normed-input.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";
import { dividedGroup, overlapOf } from "./tensor-parallel/options.js";
import { TensorParallel } from "./tensor-parallel/tensor-parallel.js";

/** Options of `LayerNormLinear`: the options of a norm and of a linear layer. All fields are optional. */
export interface LayerNormLinearOptions extends LinearOptions, NormModuleOptions {
  /** The kind of norm. Default LayerNorm. */
  readonly normalization?: Normalization | undefined;
}

/** Checks the fields of `LayerNormLinearOptions`. */
export const LAYER_NORM_LINEAR_OPTIONS: OptionTable<LayerNormLinearOptions> = {
  ...LINEAR_OPTIONS,
  ...NORM_OPTIONS,
  normalization: normalizationName,
};

const checkOptions = optionsOf(LAYER_NORM_LINEAR_OPTIONS);

/** Throws `ArgumentError` if a parameter of the linear layer would have the name of a parameter of the norm. */
function requireOtherNames({ parametersSplit: split = [] }: LayerNormLinearOptions): void {
  for (const name of isArray(split) ? split : Object.keys(split))
    if (snakeCase(name) === "layer_norm")
      throw new ArgumentError(
        `LayerNormLinear: parametersSplit has the name ${name}, which is the name of the norm; give another one`,
      );
}

/**
 * Computes linear(norm(x)) as one fused layer. Between the norm and the product, values are rounded only as the recipe says.
 * The parameters are `layerNormWeight`, `layerNormBias`, `weight` and `bias`. See `Linear` and `LayerNorm`.
 *
 * With `group`, each rank has a part of the weights (docs/distributed.md).
 *
 * @throws `ShapeError` for a size that is not divisible by the number of ranks, and for `parametersSplit` with another number of
 * rows.
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class LayerNormLinear extends Module {
  static {
    guardReceivers(this);
  }

  /** The norm's gamma, [K]. With `zeroCenteredGamma` it holds gamma - 1. */
  readonly layerNormWeight: Parameter;
  /** The norm's beta, [K]. Undefined for RMSNorm. */
  readonly layerNormBias: Parameter | undefined;
  /** The weight of the linear layer, [N, K]. See `Linear.weight`. */
  readonly weight: Parameter;
  /** The bias of the linear layer, [N]. Undefined with the option `bias: false`. */
  readonly bias: Parameter | undefined;
  readonly #norm: NormParts;
  readonly #linear: LinearParts;

  constructor(
    backend: Backend,
    /** K, the last dimension of the input. */
    readonly inFeatures: number,
    /** N, the last dimension of the result. */
    readonly outFeatures: number,
    options: LayerNormLinearOptions = {},
  ) {
    const ownOptions = checkOptions("LayerNormLinear", options);
    super(backend, ownOptions);
    requireSizes("LayerNormLinear", { inFeatures, outFeatures });
    const { dtype, random } = this;
    const form = normForm(ownOptions.normalization ?? "LayerNorm", ownOptions);
    if (ownOptions.parallelMode === "row")
      throw new ArgumentError(
        'LayerNormLinear: parallelMode is "row", which divides the columns that the norm needs; use "column", or a norm and a Linear',
      );
    requireOtherNames(ownOptions);
    const group = dividedGroup("LayerNormLinear", backend, ownOptions);
    const { sequenceParallel = false, pieces } = ownOptions;
    const overlap = overlapOf("LayerNormLinear", ownOptions);
    const parallel = group && new TensorParallel(group, "column", sequenceParallel, pieces, overlap);
    const linearOptions = { ...ownOptions, dtype, random };
    const position = () => ({ moduleType: "linear", name: this.pathOf("linear") }) as const;
    const division = { caller: "LayerNormLinear", parallel, position };
    const norm = { ...form, group: sequenceParallel ? group : undefined };
    [this.#linear, this.#norm] = orDispose((created) => [
      linearParts(backend, [outFeatures, inFeatures], linearOptions, division, created),
      normParts(norm, (name, init) => this.parameter(NORM_NAMES[name], [inFeatures], init), created),
    ]);
    this.layerNormWeight = this.#norm.gamma;
    this.layerNormBias = this.#norm.beta;
    this.weight = this.#linear.weight;
    this.bias = this.#linear.bias;
    for (const [name, parameter] of namedLeaves(this.#linear)) this.addParameter(name, parameter);
  }

  /** Frees the parameters, gradients and the quantization state. */
  override dispose(): void {
    super.dispose();
    for (const parameter of [this.weight, this.bias]) parameter?.dispose();
  }

  /** Returns the quantization state of the product, under the name `linear`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["linear", this.#linear.quantization]]);
  }

  /**
   * Returns linear(norm(input)) [..., N] for an input [..., K]. NaN and infinities propagate as in the norm and in `gemm`. An
   * input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer or its recipe, `ArgumentError` for call
   * options that the recipe does not allow, `UnsupportedError` for a recipe that the backend does not support. In each case
   * nothing has changed.
   * @throws `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    return this.#run(input, checkLinearCall("LayerNormLinear", call), {})[0] as Variable;
  }

  /**
   * Runs `forward` and also returns the norm's result, for a residual connection. The recipe then quantizes the norm's result
   * as rounded to the dtype of the input, not the f32 values (numerics.md §7.3).
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithNorm(input: VariableLike, call: NormedCall = {}): readonly [out: Variable, normed: Variable] {
    const { linearCall, toReturnedNorm } = normedCallOf("LayerNormLinear", call, this.#norm.group);
    return composed(() => {
      const [out, normResult] = this.#run(input, linearCall, { returnsNorm: true }) as [Variable, Variable];
      return [out, toReturnedNorm(normResult)];
    });
  }

  /**
   * Runs `forward` without adding the bias, and returns that bias too, as `Linear.forwardWithBias` does.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBias(
    input: VariableLike,
    call: LinearCall = {},
  ): readonly [out: Variable, bias: Variable | undefined] {
    const ownCall = checkLinearCall("LayerNormLinear", call);
    const [out, bias] = composed(() => {
      const [result] = this.#run(input, ownCall, { returnsBias: true }) as [Variable];
      return [result, ...returnedBias(this.#linear, result)];
    });
    return [out, bias];
  }

  /**
   * Runs `forwardWithBias` and also returns the norm's result, as `forwardWithNorm` does.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBiasAndNorm(
    input: VariableLike,
    call: NormedCall = {},
  ): readonly [out: Variable, bias: Variable | undefined, normed: Variable] {
    const { linearCall, toReturnedNorm } = normedCallOf("LayerNormLinear", call, this.#norm.group);
    const [out, normResult, bias] = composed(() => {
      const results = this.#run(input, linearCall, { returnsNorm: true, returnsBias: true });
      const [result, norm] = results as [Variable, Variable];
      return [result, toReturnedNorm(norm), ...returnedBias(this.#linear, result)];
    });
    return [out, bias, normResult];
  }

  #run(
    input: VariableLike,
    call: LinearCall,
    { returnsNorm = false, returnsBias = false }: ReturnedResults,
  ): readonly Variable[] {
    requireWideGradient(this, call);
    const layer = returnsBias ? withoutBias(this.#linear) : this.#linear;
    const x = variableOf("LayerNormLinear", "input", input);
    const { weight, bias } = layer;
    const inputs = [x, ...normParameters(this.#norm), ...leavesOf(weight), ...leavesOf(bias)];
    return differentiable(inputs, (grad) => {
      updateSplit(weight, bias);
      const norm = normedInput(this.#norm, x, returnsNorm, layerRegion(layer.quantization));
      const { out, backward, saved } = linearForward(layer, norm.input, call, grad);
      return {
        results: returnsNorm ? [out, norm.out()] : [out],
        saved: [...saved, ...norm.saved()],
        quantized: { gradOutput: true },
        backward: ([dy, normGrad], pass) => {
          const grads = dy ? backward(dy, pass) : {};
          return [
            ...norm.backward(grads.x, normGrad),
            ...leafGradients(weight, grads.weight),
            ...leafGradients(bias, grads.bias),
          ];
        },
      };
    });
  }
}
