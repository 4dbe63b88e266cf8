/** A norm and the two linear layers of a transformer's feed-forward part, with an activation between them. */
import type { Backend } from "../backends/backend.js";
import type { ActivationName } from "../backends/ops.js";
import { ArgumentError } from "../errors.js";
import { activation, activationBackward, gated, gatedBackward } from "../ops/activation.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import {
  type BackwardPass,
  differentiableOne,
  type Variable,
  type VariableLike,
  variable,
} from "../tape/variable.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LayerNormLinearOptions } from "./layer-norm-linear.js";
import { linearForward } from "./linear-core.js";
import {
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
import type { LinearQuantization } from "./quantization.js";

/** What stands between the two layers: a function of each element, or of one half that gates the other. */
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

export type MLPActivation = keyof typeof MLP_ACTIVATIONS;

export interface LayerNormMLPOptions extends LayerNormLinearOptions {
  /** Default gelu. */
  readonly activation?: MLPActivation;
}

/** What the activation needs of the first layer's result for the way back. */
interface Activated {
  readonly h: Tensor<WideDType>;
  readonly result: LinearResult;
}

/**
 * fc2(activation(fc1(norm(x)))), x [..., hidden]; parameters `layerNormWeight`, `layerNormBias`, `fc1Weight`
 * [ffn, hidden], or [2 ffn, hidden] where the activation is gated, `fc1Bias`, `fc2Weight` [hidden, ffn], `fc2Bias`.
 * Under a recipe norm and activation are quantized as they are computed (numerics.md §7.3); so is the activation's gradient
 * where fc1 has no bias, whose gradient sums wide values.
 */
export class LayerNormMLP extends Module {
  readonly layerNormWeight: Parameter;
  readonly layerNormBias: Parameter | undefined;
  readonly fc1Weight: Parameter;
  readonly fc1Bias: Parameter | undefined;
  readonly fc2Weight: Parameter;
  readonly fc2Bias: Parameter | undefined;
  readonly #norm: NormParts;
  readonly #fc1: LinearParts;
  readonly #fc2: LinearParts;
  readonly #form: { readonly kind: ActivationName; readonly gated: boolean };

  constructor(
    backend: Backend,
    readonly hidden: number,
    readonly ffnHidden: number,
    options: LayerNormMLPOptions = {},
  ) {
    super(backend, options);
    const { activation: name = "gelu" } = options;
    requireSizes("LayerNormMLP", { hidden, ffnHidden });
    const form = normForm(options.normalization ?? "LayerNorm", options);
    if (!Object.hasOwn(MLP_ACTIVATIONS, name))
      throw new ArgumentError(
        `LayerNormMLP: activation "${name}" is not one of ${Object.keys(MLP_ACTIVATIONS).join(", ")}`,
      );
    this.#form = MLP_ACTIVATIONS[name];
    const given = { ...options, dtype: this.dtype, random: this.random };
    this.#fc1 = linearParts(backend, [this.#form.gated ? 2 * ffnHidden : ffnHidden, hidden], given);
    try {
      this.#fc2 = linearParts(backend, [hidden, ffnHidden], given);
    } catch (error) {
      // sizes that a quantizer does not take leave nothing behind
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

  protected override quantizations(): ReadonlyMap<string, LinearQuantization> {
    return new Map([
      ["fc1", this.#fc1.quantization],
      ["fc2", this.#fc2.quantization],
    ]);
  }

  forward(input: VariableLike, call: LinearCall = {}): Variable {
    requireWideGradient(this, call);
    const x = variable(input);
    const layers = [this.#fc1, this.#fc2].flatMap(({ weight, bias }) => (bias ? [weight, bias] : [weight]));
    return differentiableOne([x, ...normParameters(this.#norm), ...layers], (grad) => {
      const norm = normedInput(this.#norm, x, false);
      const first = linearForward(this.#fc1, norm.input, { ...call, fp8Output: false }, grad);
      const h = wideOf("LayerNormMLP: the result of fc1", first.out);
      const second = this.#second(h, call, grad, norm.input.requiresGrad);
      return {
        result: second.out,
        saved: [...first.saved, ...second.saved, h, ...norm.saved()],
        quantized: { taken: true },
        backward: (dy, pass) => {
          const { x: dact, weight: dw2, bias: db2 } = second.backward(dy, pass);
          const { x: dnormed, weight: dw1, bias: db1 } = this.#first({ h, result: first }, dact, pass);
          const [own1, own2] = [this.#fc1.bias ? [dw1, db1] : [dw1], this.#fc2.bias ? [dw2, db2] : [dw2]];
          return [...norm.backward(dnormed), ...own1, ...own2];
        },
      };
    });
  }

  /** The second layer, of the activation of h; `before`: whether anything before the first wants a gradient. */
  #second(h: Tensor<WideDType>, call: LinearCall, grad: boolean, before: boolean): LinearResult {
    const { kind, gated: isGated } = this.#form;
    const shape = isGated ? [...h.shape.slice(0, -1), this.ffnHidden] : h.shape;
    const requiresGrad = before || this.#fc1.weight.requiresGrad || this.#fc1.bias?.requiresGrad === true;
    const value = (): Value => (isGated ? gated(h, { kind }) : activation(h, { kind }));
    const input = { shape, dtype: h.dtype, requiresGrad, makes: true, value };
    return linearForward(
      this.#fc2,
      { ...input, quantize: (quantizer) => quantizer.quantizeActivation(h, this.#form) },
      call,
      grad,
    );
  }

  /** The way back through the activation and the first layer. */
  #first({ h, result }: Activated, grad: Gradient | undefined, pass: BackwardPass): LinearGradients {
    if (!grad) return {};
    const dact = wideOf("LayerNormMLP: the gradient of the activation", grad);
    const { kind, gated: isGated } = this.#form;
    const { gradQuantizer } = result;
    const dh: Gradient =
      gradQuantizer && !this.#fc1.bias
        ? gradQuantizer().quantizeActivation(h, { ...this.#form, grad: dact })
        : isGated
          ? gatedBackward(dact, h, { kind })
          : activationBackward(dact, h, { kind });
    return result.backward(dh, pass);
  }
}
