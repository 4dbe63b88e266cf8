/** A norm and the two linear layers of a transformer's feed-forward part, with an activation between them. */
import type { Backend } from "../backends/backend.js";
import type { ActivationName } from "../backends/ops.js";
import { ArgumentError } from "../errors.js";
import { activation, activationBackward, gated, gatedBackward } from "../ops/activation.js";
import {
  type BackwardPass,
  differentiableOne,
  type Gradient,
  type Value,
  type Variable,
  type VariableLike,
  variable,
  wideOf,
} from "../tape/variable.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { normedGradients, normedInput, requireWideGradient } from "./layer-norm-linear.js";
import { type LinearOptions, linearParts } from "./linear.js";
import { type LinearCall, type LinearParts, type LinearResult, linearForward } from "./linear-core.js";
import { Module, requireSizes } from "./module.js";
import {
  type Normalization,
  type NormModuleOptions,
  type NormParts,
  normParts,
  requireNorm,
} from "./norm.js";
import { constantInit } from "./parameter.js";
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

export interface LayerNormMLPOptions extends LinearOptions, NormModuleOptions {
  /** Default LayerNorm. */
  readonly normalization?: Normalization;
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
 * Under a recipe the activation is quantized as it is computed (numerics.md §7.3); so is its gradient where fc1 has no
 * bias, whose gradient sums wide values.
 */
export class LayerNormMLP extends Module {
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
    const { activation: name = "gelu", normalization = "LayerNorm" } = options;
    requireSizes("LayerNormMLP", { hidden, ffnHidden });
    requireNorm(normalization, options);
    if (!Object.hasOwn(MLP_ACTIVATIONS, name))
      throw new ArgumentError(
        `LayerNormMLP: activation "${name}" is not one of ${Object.keys(MLP_ACTIVATIONS).join(", ")}`,
      );
    this.#form = MLP_ACTIVATIONS[name];
    const given = { ...options, random: this.random };
    this.#fc1 = linearParts(backend, [this.#form.gated ? 2 * ffnHidden : ffnHidden, hidden], given);
    try {
      this.#fc2 = linearParts(backend, [hidden, ffnHidden], given);
    } catch (error) {
      // sizes that a quantizer does not take leave nothing behind
      for (const made of [this.#fc1.weight, this.#fc1.bias]) made?.dispose();
      throw error;
    }
    const names = { gamma: "layerNormWeight", beta: "layerNormBias" };
    this.#norm = normParts(normalization, options, (part, initial) =>
      this.parameter(names[part], [hidden], constantInit(initial)),
    );
    for (const [layer, { weight, bias }] of Object.entries({ fc1: this.#fc1, fc2: this.#fc2 })) {
      this.addParameter(`${layer}Weight`, weight);
      if (bias) this.addParameter(`${layer}Bias`, bias);
    }
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
    const norm = [this.#norm.gamma, ...(this.#norm.beta ? [this.#norm.beta] : [])];
    const layers = [this.#fc1, this.#fc2].map(({ weight, bias }) => (bias ? [weight, bias] : [weight]));
    return differentiableOne([x, ...norm, ...layers.flat()], (grad) => {
      const source = wideOf("the input of a norm", x.value);
      const wants = [x, ...norm].some((each) => each.requiresGrad);
      const made = normedInput(this.#norm, source, { requiresGrad: wants, returned: false });
      const first = linearForward(this.#fc1, made.input, { ...call, fp8Output: false }, grad);
      const h = wideOf("LayerNormMLP", first.out);
      const second = this.#second(h, call, grad, wants);
      const { mean, rstd } = made.normed;
      return {
        result: second.out,
        saved: [...first.saved, ...second.saved, h, mean, rstd],
        backward: (dy, pass) => {
          const { x: dact, weight: dw2, bias: db2 } = second.backward(dy, pass);
          const { x: dnormed, weight: dw1, bias: db1 } = this.#first({ h, result: first }, dact, pass);
          const through = normedGradients(this.#norm, source, made.normed, dnormed, undefined);
          const behind = Array.from({ length: 1 + norm.length }, (_, i) => through[i]);
          return [...behind, dw1, ...(this.#fc1.bias ? [db1] : []), dw2, ...(this.#fc2.bias ? [db2] : [])];
        },
      };
    });
  }

  /** The second layer, of the activation of h. */
  #second(h: Tensor<WideDType>, call: LinearCall, grad: boolean, wants: boolean): LinearResult {
    const { kind, gated: isGated } = this.#form;
    const shape = isGated ? [...h.shape.slice(0, -1), this.ffnHidden] : h.shape;
    const requiresGrad = wants || this.#fc1.weight.requiresGrad || this.#fc1.bias?.requiresGrad === true;
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
  #first({ h, result }: Activated, grad: Gradient | undefined, pass: BackwardPass) {
    if (!grad) return {};
    const dact = wideOf("LayerNormMLP", grad);
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
