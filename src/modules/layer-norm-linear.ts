/** A norm and the linear layer behind it. */
import { currentRegion } from "../autocast/autocast.js";
import type { Backend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { add } from "../ops/add.js";
import type { NormResult } from "../ops/norm.js";
import {
  differentiable,
  type Gradient,
  type Variable,
  type VariableLike,
  variable,
  wideOf,
} from "../tape/variable.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { type LinearOptions, linearParts } from "./linear.js";
import { type LinearCall, type LinearInput, type LinearParts, linearForward } from "./linear-core.js";
import { Module, requireSizes } from "./module.js";
import {
  type Normalization,
  type NormModuleOptions,
  type NormParts,
  normForward,
  normGradients,
  normParts,
  requireNorm,
} from "./norm.js";
import { constantInit, type Parameter } from "./parameter.js";
import type { LinearQuantization } from "./quantization.js";

export interface LayerNormLinearOptions extends LinearOptions, NormModuleOptions {
  /** Default LayerNorm. */
  readonly normalization?: Normalization;
}

/** What a norm gives the product behind it. */
export interface NormedInput {
  readonly input: LinearInput;
  readonly normed: NormResult;
}

/**
 * The norm of x as the input of a product. Delayed scaling casts the f32 values, any other recipe sees them rounded to
 * the type of x (numerics.md §7.3), and so does whoever asks for them as well.
 */
export function normedInput(
  parts: NormParts,
  x: Tensor<WideDType>,
  options: {
    readonly requiresGrad: boolean;
    readonly returned: boolean;
  },
): NormedInput {
  const region = currentRegion();
  const { shape, dtype } = x;
  const casts = region?.enabled === true && region.recipe.kind === "delayed" && !options.returned;
  const normed = normForward(parts, x, casts ? "f32" : dtype);
  const value = (): Tensor => normed.out;
  const { requiresGrad } = options;
  return { normed, input: { shape, dtype, requiresGrad, makes: !options.returned, value } };
}

/** Throws `ArgumentError` where the gradient of a norm's result is to be quantized. */
export function requireWideGradient(module: Module, { fp8Grad }: LinearCall): void {
  if (fp8Grad)
    throw new ArgumentError(
      `${module.constructor.name}: fp8Grad is for a Linear behind another; here the norm's backward pass takes the gradient, wide`,
    );
}

/** The gradients of a norm's input and parameters, given that of the product's input. */
export function normedGradients(
  parts: NormParts,
  x: Tensor<WideDType>,
  normed: NormResult,
  grad: Gradient | undefined,
  returned: Gradient | undefined,
): readonly (Tensor<WideDType> | undefined)[] {
  const [own, other] = [grad, returned].map((each) => each && wideOf("the gradient of a norm", each));
  const total = own && other ? add(own, other) : (own ?? other);
  return total ? normGradients(parts, x, normed, total) : [];
}

/**
 * linear(norm(x)) without a rounding in between that the recipe does not want; parameters `layerNormWeight`,
 * `layerNormBias`, `weight` and `bias`. See `Linear` and `LayerNorm`.
 */
export class LayerNormLinear extends Module {
  readonly layerNormWeight: Parameter;
  readonly layerNormBias: Parameter | undefined;
  readonly weight: Parameter;
  readonly bias: Parameter | undefined;
  readonly #norm: NormParts;
  readonly #linear: LinearParts;

  constructor(
    backend: Backend,
    readonly inFeatures: number,
    readonly outFeatures: number,
    options: LayerNormLinearOptions = {},
  ) {
    super(backend, options);
    const { normalization = "LayerNorm" } = options;
    requireSizes("LayerNormLinear", { inFeatures, outFeatures });
    requireNorm(normalization, options);
    this.#linear = linearParts(this.backend, [outFeatures, inFeatures], { ...options, random: this.random });
    const names = { gamma: "layerNormWeight", beta: "layerNormBias" };
    this.#norm = normParts(normalization, options, (name, initial) =>
      this.parameter(names[name], [inFeatures], constantInit(initial)),
    );
    this.layerNormWeight = this.#norm.gamma;
    this.layerNormBias = this.#norm.beta;
    this.weight = this.addParameter("weight", this.#linear.weight);
    this.bias = this.#linear.bias && this.addParameter("bias", this.#linear.bias);
  }

  protected override quantizations(): ReadonlyMap<string, LinearQuantization> {
    return new Map([["linear", this.#linear.quantization]]);
  }

  forward(input: VariableLike, call: LinearCall = {}): Variable {
    return this.#run(input, call, false)[0] as Variable;
  }

  /** As `forward`, with the norm's result beside it, as a residual connection takes it. */
  forwardWithNorm(input: VariableLike, call: LinearCall = {}): readonly [out: Variable, normed: Variable] {
    const [out, normed] = this.#run(input, call, true);
    return [out as Variable, normed as Variable];
  }

  #run(input: VariableLike, call: LinearCall, returned: boolean): readonly Variable[] {
    requireWideGradient(this, call);
    const x = variable(input);
    const { gamma, beta } = this.#norm;
    const { weight, bias } = this.#linear;
    const norm = beta ? [gamma, beta] : [gamma];
    const inputs = [x, ...norm, weight, ...(bias ? [bias] : [])];
    return differentiable(inputs, (grad) => {
      const source = wideOf("the input of a norm", x.value);
      const requiresGrad = [x, ...norm].some((each) => each.requiresGrad);
      const made = normedInput(this.#norm, source, { requiresGrad, returned });
      const { mean, rstd, out: normed } = made.normed;
      const { out, backward, saved } = linearForward(this.#linear, made.input, call, grad);
      return {
        results: returned ? [out, normed] : [out],
        saved: [...saved, mean, rstd],
        backward: ([dy, dnormed], pass) => {
          const grads = dy ? backward(dy, pass) : {};
          const through = normedGradients(this.#norm, source, made.normed, grads.x, dnormed);
          const first = Array.from({ length: 1 + norm.length }, (_, i) => through[i]);
          return [...first, grads.weight, grads.bias];
        },
      };
    });
  }
}
