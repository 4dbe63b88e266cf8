/** A norm followed by a linear layer. */
import type { Backend } from "../backends/backend.js";
import { type OptionTable, optionsOf } from "../options.js";
import { differentiable, type VariableLike, variable } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
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
import { NORM_NAMES, normedInput, requireWideGradient } from "./normed-input.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";

/** What `LayerNormLinear` takes: the options of a norm and of a linear layer. */
export interface LayerNormLinearOptions extends LinearOptions, NormModuleOptions {
  /** Default LayerNorm. */
  readonly normalization?: Normalization | undefined;
}

/** The rows of `LayerNormLinearOptions`. */
export const LAYER_NORM_LINEAR_OPTIONS: OptionTable<LayerNormLinearOptions> = {
  ...LINEAR_OPTIONS,
  ...NORM_OPTIONS,
  normalization: normalizationName,
};

const checkOptions = optionsOf(LAYER_NORM_LINEAR_OPTIONS);

/**
 * linear(norm(x)), fused: between the two, values are rounded only as the recipe says. Parameters: `layerNormWeight`,
 * `layerNormBias`, `weight` and `bias`. See `Linear` and `LayerNorm`.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class LayerNormLinear extends Module {
  /** The norm's gamma, [K]; gamma minus 1 where it is zero-centred. */
  readonly layerNormWeight: Parameter;
  /** The norm's beta, [K]. Undefined under RMSNorm. */
  readonly layerNormBias: Parameter | undefined;
  /** [N, K]. */
  readonly weight: Parameter;
  /** [N]. Undefined where the layer was made without one. */
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
    super(backend, checkOptions("LayerNormLinear", options));
    requireSizes("LayerNormLinear", { inFeatures, outFeatures });
    const { dtype, random } = this;
    const form = normForm(options.normalization ?? "LayerNorm", options);
    this.#linear = linearParts(backend, [outFeatures, inFeatures], { ...options, dtype, random });
    this.#norm = normParts(form, (name, init) => this.parameter(NORM_NAMES[name], [inFeatures], init));
    this.layerNormWeight = this.#norm.gamma;
    this.layerNormBias = this.#norm.beta;
    this.weight = this.addParameter("weight", this.#linear.weight);
    this.bias = this.#linear.bias && this.addParameter("bias", this.#linear.bias);
  }

  /** The quantization of the product, under the name `linear`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([["linear", this.#linear.quantization]]);
  }

  /**
   * linear(norm(input)), [..., N], for an input [..., K]. NaN and infinities behave as in the norm and the product. An input
   * without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer or its recipe, `ArgumentError` for a call
   * that the recipe does not take, `UnsupportedError` where the backend does not; nothing has changed then.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    return this.#run(input, call, false)[0] as Variable;
  }

  /**
   * As `forward`, and also returns the norm's result, for a residual connection. A recipe then quantizes that rounded result
   * (numerics.md §7.3).
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithNorm(input: VariableLike, call: LinearCall = {}): readonly [out: Variable, normed: Variable] {
    const [out, normed] = this.#run(input, call, true);
    return [out as Variable, normed as Variable];
  }

  #run(input: VariableLike, call: LinearCall, returned: boolean): readonly Variable[] {
    requireWideGradient(this, checkLinearCall("LayerNormLinear", call));
    const x = variable(input);
    const { weight, bias } = this.#linear;
    const inputs = [x, ...normParameters(this.#norm), weight, ...(bias ? [bias] : [])];
    return differentiable(inputs, (grad) => {
      const norm = normedInput(this.#norm, x, returned);
      const { out, backward, saved } = linearForward(this.#linear, norm.input, call, grad);
      return {
        results: returned ? [out, norm.out()] : [out],
        saved: [...saved, ...norm.saved()],
        quantized: { gradOutput: true },
        backward: ([dy, dnormed], pass) => {
          const grads = dy ? backward(dy, pass) : {};
          return [...norm.backward(grads.x, dnormed), grads.weight, grads.bias];
        },
      };
    });
  }
}
