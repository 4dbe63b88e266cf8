/** A norm and the two linear layers of a transformer's feed-forward part, with an activation between them. */
import { currentRegion } from "../autocast/autocast.js";
import type { Backend } from "../backends/backend.js";
import type { ActivationName } from "../backends/ops.js";
import { activation, activationBackward, gated, gatedBackward } from "../ops/elementwise/activation.js";
import { oneOf, optionsOf } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import type { BackwardPass } from "../tape/node.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { LAYER_NORM_LINEAR_OPTIONS, type LayerNormLinearOptions } from "./layer-norm-linear.js";
import { linearForward, prepareForward } from "./linear-core.js";
import {
  checkLinearCall,
  type LinearCall,
  type LinearGradients,
  type LinearParts,
  type LinearResult,
  linearParts,
} from "./linear-parts.js";
import { Module, requireSizes } from "./module.js";
import { type NormParts, normForm, normParameters, normParts } from "./norm.js";
import { NORM_NAMES, normedInput, requireWideGradient } from "./normed-input.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";

/** The activations between the two layers: elementwise, or gated by the second half. */
export const MLP_ACTIVATIONS = {
  gelu: { kind: "gelu", gated: false },
  qgelu: { kind: "qgelu", gated: false },
  relu: { kind: "relu", gated: false },
  srelu: { kind: "srelu", gated: false },
  silu: { kind: "silu", gated: false },
  glu: { kind: "sigmoid", gated: true },
  geglu: { kind: "gelu", gated: true },
  qgeglu: { kind: "qgelu", gated: true },
  reglu: { kind: "relu", gated: true },
  sreglu: { kind: "srelu", gated: true },
  swiglu: { kind: "silu", gated: true },
} as const satisfies Record<string, { readonly kind: ActivationName; readonly gated: boolean }>;

/** An activation of `LayerNormMLP`, plain or gated, by TransformerEngine's names. */
export type MLPActivation = keyof typeof MLP_ACTIVATIONS;

/** What `LayerNormMLP` takes: the options of a norm and of its two linear layers, and the activation between them. */
export interface LayerNormMLPOptions extends LayerNormLinearOptions {
  /** Default gelu. */
  readonly activation?: MLPActivation | undefined;
}

const checkOptions = optionsOf<LayerNormMLPOptions>({
  ...LAYER_NORM_LINEAR_OPTIONS,
  activation: oneOf(Object.keys(MLP_ACTIVATIONS)),
});

/** The result of the first layer, kept for the backward pass of the activation. */
interface Activated {
  readonly h: Tensor<WideDType>;
  readonly result: LinearResult;
  readonly fusions: Fusions;
}

/** What is fused with its quantization, rather than rounded to the activations' type first. */
interface Fusions {
  /** The activation. */
  readonly value: boolean;
  /** Its gradient; the gradient of fc1's bias then sums f32 values. */
  readonly gradient: boolean;
  /** Its gradient where no bias gradient needs the tensor; bitwise equal to the unfused result. */
  readonly gradientAlone: boolean;
}

const UNFUSED: Fusions = { value: false, gradient: false, gradientAlone: false };

/**
 * TransformerEngine's choices (`pytorch/module/layernorm_mlp.py`): the activation is fused except under custom quantizers, its
 * gradient under delayed scaling and MXFP8 unless it is gated. Block-scaled FP8 sees rounded values in any case (numerics.md
 * §7.3).
 */
function fusionsOf({ row }: Recipe, gated: boolean): Fusions {
  if (!row) return UNFUSED;
  const { ungated, alone } = row.gradientSteps;
  return { value: true, gradient: !gated && ungated, gradientAlone: alone };
}

/**
 * fc2(activation(fc1(norm(x)))), x [..., hidden]; parameters `layerNormWeight`, `layerNormBias`, `fc1Weight` [ffn, hidden], or
 * [2 ffn, hidden] for a gated activation, `fc1Bias`, `fc2Weight` [hidden, ffn], `fc2Bias`. A recipe quantizes the f32 values of
 * norm and activation (numerics.md §7.3), except with custom quantizers. Under delayed scaling and MXFP8 this holds for the
 * gradient of an ungated activation too, and the gradient of `fc1Bias` sums its f32 values. Any other gradient is rounded to
 * the activations' type first.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class LayerNormMLP extends Module {
  /** The norm's gamma, [K]; gamma minus 1 where it is zero-centred. */
  readonly layerNormWeight: Parameter;
  /** The norm's beta, [K]. Undefined under RMSNorm. */
  readonly layerNormBias: Parameter | undefined;
  /** [ffnHidden, K], twice as many rows where the activation is gated. */
  readonly fc1Weight: Parameter;
  /** As many elements as `fc1Weight` has rows. Undefined where the layers were made without biases. */
  readonly fc1Bias: Parameter | undefined;
  /** [K, ffnHidden]. */
  readonly fc2Weight: Parameter;
  /** [K]. Undefined where the layers were made without biases. */
  readonly fc2Bias: Parameter | undefined;
  readonly #norm: NormParts;
  readonly #fc1: LinearParts;
  readonly #fc2: LinearParts;
  readonly #form: { readonly kind: ActivationName; readonly gated: boolean };

  constructor(
    backend: Backend,
    /** K, the last dimension of input and result. */
    readonly hidden: number,
    /** The width between the two layers, after the activation. */
    readonly ffnHidden: number,
    options: LayerNormMLPOptions = {},
  ) {
    super(backend, checkOptions("LayerNormMLP", options));
    const { activation: name = "gelu" } = options;
    requireSizes("LayerNormMLP", { hidden, ffnHidden });
    const form = normForm(options.normalization ?? "LayerNorm", options);
    this.#form = MLP_ACTIVATIONS[name];
    const given = { ...options, dtype: this.dtype, random: this.random };
    this.#fc1 = linearParts(backend, [this.#form.gated ? 2 * ffnHidden : ffnHidden, hidden], given);
    try {
      this.#fc2 = linearParts(backend, [hidden, ffnHidden], given);
    } catch (error) {
      // if a quantizer refuses the sizes, free the parameters made so far
      for (const made of [this.#fc1.weight, this.#fc1.bias]) made?.dispose();
      throw error;
    }
    this.#norm = normParts(form, (part, init) => this.parameter(NORM_NAMES[part], [hidden], init));
    this.layerNormWeight = this.#norm.gamma;
    this.layerNormBias = this.#norm.beta;
    this.fc1Weight = this.addParameter("fc1Weight", this.#fc1.weight);
    this.fc1Bias = this.#fc1.bias && this.addParameter("fc1Bias", this.#fc1.bias);
    this.fc2Weight = this.addParameter("fc2Weight", this.#fc2.weight);
    this.fc2Bias = this.#fc2.bias && this.addParameter("fc2Bias", this.#fc2.bias);
  }

  /** The quantizations of the two products, under the names `fc1` and `fc2`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([
      ["fc1", this.#fc1.quantization],
      ["fc2", this.#fc2.quantization],
    ]);
  }

  /**
   * fc2(activation(fc1(norm(input)))) for an input [..., K], in its shape. NaN and infinities behave as in each of these
   * operations. An input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layers or their recipe, `ArgumentError` for a call
   * that the recipe does not take, `UnsupportedError` where the backend does not; nothing has changed then.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    requireWideGradient(this, checkLinearCall("LayerNormMLP", call));
    const x = variable(input);
    const layers = [this.#fc1, this.#fc2].flatMap(({ weight, bias }) => (bias ? [weight, bias] : [weight]));
    return differentiableOne([x, ...normParameters(this.#norm), ...layers], (grad) => {
      const norm = normedInput(this.#norm, x, false);
      prepareForward(this.#fc2, { ...norm.input, shape: this.#activated(norm.input.shape) });
      using _ = { [Symbol.dispose]: () => this.#fc2.quantization.release() };
      const first = linearForward(this.#fc1, norm.input, { ...call, fp8Output: false }, grad);
      const h = wideOf("LayerNormMLP: the result of fc1", first.out);
      const region = currentRegion();
      const fusions = region?.enabled ? fusionsOf(region.recipe, this.#form.gated) : UNFUSED;
      const second = this.#second({ h, result: first, fusions }, call, grad, norm.input.requiresGrad);
      return {
        result: second.out,
        saved: [...first.saved, ...second.saved, h, ...norm.saved()],
        quantized: { gradOutput: true },
        backward: (dy, pass) => {
          const { x: dact, weight: dw2, bias: db2 } = second.backward(dy, pass);
          const {
            x: dnormed,
            weight: dw1,
            bias: db1,
          } = this.#first({ h, result: first, fusions }, dact, pass);
          const [own1, own2] = [this.#fc1.bias ? [dw1, db1] : [dw1], this.#fc2.bias ? [dw2, db2] : [dw2]];
          return [...norm.backward(dnormed), ...own1, ...own2];
        },
      };
    });
  }

  /** The shape of the activation, given that of the input or of the first layer's result. */
  #activated(shape: Shape): Shape {
    return [...shape.slice(0, -1), this.ffnHidden];
  }

  /** The second layer, applied to the activation of h. `before`: whether the input or the norm requires a gradient. */
  #second({ h, fusions }: Activated, call: LinearCall, grad: boolean, before: boolean): LinearResult {
    const { kind, gated: isGated } = this.#form;
    const shape = this.#activated(h.shape);
    const requiresGrad = before || this.#fc1.weight.requiresGrad || this.#fc1.bias?.requiresGrad === true;
    const value = (): Value => (isGated ? gated(h, { kind }) : activation(h, { kind }));
    const quantize = (quantizer: Quantizer): QuantizedTensor => quantizer.activationQuantize(h, this.#form);
    const input = { shape, dtype: h.dtype, backend: h.backend, requiresGrad, makes: true, value };
    return linearForward(this.#fc2, fusions.value ? { ...input, quantize } : input, call, grad);
  }

  /** The backward pass of the activation and the first layer. */
  #first({ h, result, fusions }: Activated, grad: Gradient | undefined, pass: BackwardPass): LinearGradients {
    if (!grad) return {};
    const dact = wideOf("LayerNormMLP: the gradient of the activation", grad);
    const { kind, gated: isGated } = this.#form;
    const bias = this.#fc1.bias?.requiresGrad === true;
    const summed =
      fusions.gradient && bias ? activationBackward(dact, h, { kind, outDtype: "f32" }) : undefined;
    const { gradQuantizer } = result;
    if (gradQuantizer && (fusions.gradient || (fusions.gradientAlone && !bias))) {
      const dh = gradQuantizer().activationQuantize(h, { ...this.#form, grad: dact });
      return result.backward(dh, pass, summed);
    }
    const dh = summed ?? (isGated ? gatedBackward : activationBackward)(dact, h, { kind });
    return result.backward(dh, pass);
  }
}
