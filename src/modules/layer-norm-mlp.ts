/** The feed-forward block of a transformer: a norm, a linear layer (fc1), an activation and a second linear layer (fc2). */

import type { Region } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import type { ActivationName } from "../backends/ops.js";
import { guardReceivers } from "../brand.js";
import { groupOf } from "../functional/ranks.js";
import { activation, activationBackward, gated, gatedBackward } from "../ops/elementwise/activation.js";
import { callable, oneOf, optionsOf } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { composed } from "../tape/composed.js";
import { differentiable, type VariableLike, variableOf } from "../tape/differentiable.js";
import type { BackwardPass } from "../tape/node.js";
import { type Gradient, type Value, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import { orDispose } from "../tensor/scope.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { LAYER_NORM_LINEAR_OPTIONS, type LayerNormLinearOptions } from "./layer-norm-linear.js";
import { layerRegion } from "./layer-region.js";
import { linearForward, prepareForward } from "./linear/forward.js";
import {
  checkLinearCall,
  type Division,
  type LinearCall,
  type LinearGradients,
  type LinearParts,
  type LinearResult,
  linearParts,
} from "./linear/parts.js";
import { returnedBias, withoutBias } from "./linear/returned-bias.js";
import { Module, requireSizes } from "./module.js";
import { type NormParts, normForm, normParameters, normParts } from "./norm.js";
import { type NormedCall, normedCallOf, type ReturnedResults } from "./normed-call.js";
import { fusesQuantization, NORM_NAMES, normedInput, requireWideGradient } from "./normed-input.js";
import type { InitMethod, Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";
import { overlapOf, type ParallelMode } from "./tensor-parallel/options.js";
import { TensorParallel } from "./tensor-parallel/tensor-parallel.js";

/**
 * The activation functions between the two layers. `kind` is applied elementwise; if `gated`, the result is kind(first half)
 * times the second half of the last dimension.
 */
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

/** The name of an activation of `LayerNormMLP`, as in TransformerEngine. */
export type MLPActivation = keyof typeof MLP_ACTIVATIONS;

/** Options of `LayerNormMLP`: options of the norm, of the two linear layers, and of the activation. All fields are optional. */
export interface LayerNormMLPOptions
  extends Omit<LayerNormLinearOptions, "parallelMode" | "pieces" | "parametersSplit"> {
  /** The activation between the two linear layers. Default gelu. */
  readonly activation?: MLPActivation | undefined;
  /** Computes the initial weight of fc1. Default: as `Linear`'s. */
  readonly initMethod?: InitMethod | undefined;
  /** Computes the initial weight of fc2. Default: as `Linear`'s. */
  readonly outputLayerInitMethod?: InitMethod | undefined;
}

const { parallelMode: _, pieces: __, parametersSplit: ___, ...OPTIONS } = LAYER_NORM_LINEAR_OPTIONS;
const checkOptions = optionsOf<LayerNormMLPOptions>({
  ...OPTIONS,
  activation: oneOf(Object.keys(MLP_ACTIVATIONS)),
  outputLayerInitMethod: callable,
});

/** The result h of fc1, kept for the backward pass of the activation. */
interface ActivationState {
  readonly h: Tensor<WideDType>;
  readonly result: LinearResult;
  readonly fusions: Fusions;
}

/**
 * Says which computations are fused with the quantization of their result. In a fused computation, the quantizer decides whether
 * it reads the f32 result or the result rounded to the dtype of the activations (numerics.md §7.3). Without fusion it always
 * reads the rounded result.
 */
interface Fusions {
  /** Whether the activation is fused. */
  readonly value: boolean;
  /** Whether the gradient of the activation is fused. The gradient of fc1's bias is then the sum of its f32 values. */
  readonly gradient: boolean;
  /**
   * Whether the gradient of the activation is fused if the bias needs no gradient. The result is bitwise equal to the unfused
   * one.
   */
  readonly gradientWithoutBias: boolean;
}

/**
 * Returns TransformerEngine's choices (`pytorch/module/layernorm_mlp.py`). The activation is fused except under custom quantizers
 * or a `backwardOverride`. Its gradient is fused under delayed scaling and MXFP8 unless the activation is gated. Under MXFP8 and
 * block-scaled FP8 it is also fused if no bias gradient needs it, with the same bits as without fusion. The first region is the
 * region of fc1, whose recipe quantizes the gradient; the second is the region of fc2, whose recipe quantizes the activation.
 */
function chooseFusions([firstRegion, second]: readonly (Region | undefined)[], gated: boolean): Fusions {
  const recipeRow = (region: Region | undefined) =>
    region?.enabled && fusesQuantization(region.recipe) ? region.recipe.row : undefined;
  const { ungated = false, alone = false } = recipeRow(firstRegion)?.gradientSteps ?? {};
  const value = recipeRow(second) !== undefined;
  return { value, gradient: !gated && ungated, gradientWithoutBias: alone };
}

/**
 * Computes fc2(activation(fc1(norm(x)))) for x [..., hidden].
 *
 * The parameters are `layerNormWeight` and `layerNormBias` [hidden], `fc1Weight` [ffnHidden, hidden] ([2 * ffnHidden, hidden] for
 * a gated activation), `fc1Bias`, `fc2Weight` [hidden, ffnHidden] and `fc2Bias`. With `group`, each rank has a part of the
 * weights (docs/distributed.md).
 *
 * Under a recipe, the norm and the activation are fused with the quantization of their results, except with custom quantizers;
 * numerics.md §7.3 says which quantizers read f32 values and which read rounded ones. Under delayed scaling and MXFP8, the
 * gradient of an ungated activation is fused too, and the gradient of `fc1Bias` sums its f32 values. Every other gradient of an
 * activation is rounded to the dtype of the activations first.
 *
 * @throws `ShapeError` for a size that is not divisible by the number of ranks, `ArgumentError` for an unknown option, an invalid
 * option value, or a size that is not a positive integer, `DTypeError` for a parameter dtype other than f32, bf16 and f16,
 * `DisposedError` for a disposed backend.
 */
export class LayerNormMLP extends Module {
  static {
    guardReceivers(this);
  }

  /** The norm's gamma, [K]. With `zeroCenteredGamma` it holds gamma - 1. */
  readonly layerNormWeight: Parameter;
  /** The norm's beta, [K]. Undefined for RMSNorm. */
  readonly layerNormBias: Parameter | undefined;
  /** The weight of fc1: [ffnHidden, K], or [2 * ffnHidden, K] if the activation is gated. */
  readonly fc1Weight: Parameter;
  /** The bias of fc1, with one element for each row of `fc1Weight`. Undefined with the option `bias: false`. */
  readonly fc1Bias: Parameter | undefined;
  /** The weight of fc2, [K, ffnHidden]. */
  readonly fc2Weight: Parameter;
  /** The bias of fc2, [K]. Undefined with the option `bias: false`. */
  readonly fc2Bias: Parameter | undefined;
  readonly #norm: NormParts;
  readonly #fc1: LinearParts;
  readonly #fc2: LinearParts;
  /** The number of columns of the activation's result on this rank. */
  readonly #width: number;
  readonly #form: { readonly kind: ActivationName; readonly gated: boolean };

  constructor(
    backend: Backend,
    /** K, the last dimension of the input and of the result. */
    readonly hidden: number,
    /** The last dimension of the activation's result, which is the input of fc2. */
    readonly ffnHidden: number,
    options: LayerNormMLPOptions = {},
  ) {
    const ownOptions = checkOptions("LayerNormMLP", options);
    super(backend, ownOptions);
    const { activation: name = "gelu" } = ownOptions;
    requireSizes("LayerNormMLP", { hidden, ffnHidden });
    const form = normForm(ownOptions.normalization ?? "LayerNorm", ownOptions);
    this.#form = MLP_ACTIVATIONS[name];
    const firstOptions = { ...ownOptions, dtype: this.dtype, random: this.random };
    const secondOptions = { ...firstOptions, initMethod: ownOptions.outputLayerInitMethod };
    const { sequenceParallel = false } = ownOptions;
    const overlap = overlapOf("LayerNormMLP", ownOptions);
    const group = groupOf("LayerNormMLP", backend, ownOptions);
    const division = (name: "fc1" | "fc2", mode: ParallelMode, pieces = 1): Division => ({
      caller: "LayerNormMLP",
      parallel: group && new TensorParallel(group, mode, sequenceParallel, pieces, overlap),
      size: "ffnHidden",
      position: () => ({ moduleType: "linear", name: this.pathOf(name) }),
    });
    const halves = this.#form.gated ? 2 : 1;
    this.#width = ffnHidden / (group?.size ?? 1);
    const norm = { ...form, group: sequenceParallel ? group : undefined };
    [this.#fc1, this.#fc2, this.#norm] = orDispose((created) => [
      linearParts(
        backend,
        [halves * ffnHidden, hidden],
        firstOptions,
        division("fc1", "column", halves),
        created,
      ),
      linearParts(backend, [hidden, ffnHidden], secondOptions, division("fc2", "row"), created),
      normParts(norm, (part, init) => this.parameter(NORM_NAMES[part], [hidden], init), created),
    ]);
    this.layerNormWeight = this.#norm.gamma;
    this.layerNormBias = this.#norm.beta;
    this.fc1Weight = this.addParameter("fc1Weight", this.#fc1.weight);
    this.fc1Bias = this.#fc1.bias && this.addParameter("fc1Bias", this.#fc1.bias);
    this.fc2Weight = this.addParameter("fc2Weight", this.#fc2.weight);
    this.fc2Bias = this.#fc2.bias && this.addParameter("fc2Bias", this.#fc2.bias);
  }

  /** Returns the quantization states of the two products, under the names `fc1` and `fc2`. */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map([
      ["fc1", this.#fc1.quantization],
      ["fc2", this.#fc2.quantization],
    ]);
  }

  /**
   * Returns fc2(activation(fc1(norm(input)))) for an input [..., K], in the same shape. NaN and infinities propagate as in each
   * of these operations. An input without rows gives a result without rows.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layers or their recipe, `ArgumentError` for call
   * options that the recipe does not allow, `UnsupportedError` for a recipe that the backend does not support. In each case
   * nothing has changed.
   * @throws `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike, call: LinearCall = {}): Variable {
    return this.#run(input, checkLinearCall("LayerNormMLP", call), {})[0] as Variable;
  }

  /**
   * Runs `forward` and also returns the norm's result, for a residual connection. The recipe then quantizes the norm's result
   * as rounded to the dtype of the input, not the f32 values (numerics.md §7.3).
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithNorm(input: VariableLike, call: NormedCall = {}): readonly [out: Variable, normed: Variable] {
    const { linearCall, toReturnedNorm } = normedCallOf("LayerNormMLP", call, this.#norm.group);
    return composed(() => {
      const [out, normResult] = this.#run(input, linearCall, { returnsNorm: true }) as [Variable, Variable];
      return [out, toReturnedNorm(normResult)];
    });
  }

  /**
   * Runs `forward` without adding the bias of fc2, and returns that bias too, as `Linear.forwardWithBias` does.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBias(
    input: VariableLike,
    call: LinearCall = {},
  ): readonly [out: Variable, bias: Variable | undefined] {
    const ownCall = checkLinearCall("LayerNormMLP", call);
    const [out, bias] = composed(() => {
      const [result] = this.#run(input, ownCall, { returnsBias: true }) as [Variable];
      return [result, ...returnedBias(this.#fc2, result)];
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
    const { linearCall, toReturnedNorm } = normedCallOf("LayerNormMLP", call, this.#norm.group);
    const [out, normResult, bias] = composed(() => {
      const results = this.#run(input, linearCall, { returnsNorm: true, returnsBias: true });
      const [result, norm] = results as [Variable, Variable];
      return [result, toReturnedNorm(norm), ...returnedBias(this.#fc2, result)];
    });
    return [out, bias, normResult];
  }

  #run(
    input: VariableLike,
    call: LinearCall,
    { returnsNorm = false, returnsBias = false }: ReturnedResults,
  ): readonly Variable[] {
    requireWideGradient(this, call);
    const x = variableOf("LayerNormMLP", "input", input);
    const fc2 = returnsBias ? withoutBias(this.#fc2) : this.#fc2;
    const layers = [this.#fc1, fc2].flatMap(({ weight, bias }) => (bias ? [weight, bias] : [weight]));
    return differentiable([x, ...normParameters(this.#norm), ...layers], (grad) => {
      const regions = [this.#fc1, this.#fc2].map(({ quantization }) => layerRegion(quantization));
      const norm = normedInput(this.#norm, x, returnsNorm, regions[0]);
      const rows = this.#fc1.parallel?.fullInputShape(norm.input.shape) ?? norm.input.shape;
      const requiresGrad = this.#activationRequiresGrad(norm.input.requiresGrad);
      prepareForward(this.#fc2, { ...norm.input, shape: this.#activationShape(rows), requiresGrad });
      using _ = { [Symbol.dispose]: () => this.#fc2.quantization.release() };
      const firstLinear = linearForward(this.#fc1, norm.input, { ...call, fp8Output: false }, grad);
      const h = wideOf("LayerNormMLP: the result of fc1", firstLinear.out);
      const fusions = chooseFusions(regions, this.#form.gated);
      const second = this.#runFc2(fc2, { h, result: firstLinear, fusions }, call, grad, requiresGrad);
      return {
        results: returnsNorm ? [second.out, norm.out()] : [second.out],
        saved: [...firstLinear.saved, ...second.saved, h, ...norm.saved()],
        quantized: { gradOutput: !this.#fc2.parallel?.gathers("gradOutput") },
        backward: ([dy, returnedGrad], pass) => {
          const { x: dact, weight: dw2, bias: db2 } = dy ? second.backward(dy, pass) : {};
          const {
            x: normGrad,
            weight: dw1,
            bias: db1,
          } = this.#fc1Backward({ h, result: firstLinear, fusions }, dact, pass);
          const fc1Grads = this.#fc1.bias ? [dw1, db1] : [dw1];
          const fc2Grads = fc2.bias ? [dw2, db2] : [dw2];
          return [...norm.backward(normGrad, returnedGrad), ...fc1Grads, ...fc2Grads];
        },
      };
    });
  }

  /** Returns the shape of the activation's result. `shape` is the shape of the input or of fc1's result. */
  #activationShape(shape: Shape): Shape {
    return [...shape.slice(0, -1), this.#width];
  }

  /** Whether the activation requires a gradient. `normRequiresGrad`: whether the input or a parameter of the norm does. */
  #activationRequiresGrad(normRequiresGrad: boolean): boolean {
    return normRequiresGrad || this.#fc1.weight.requiresGrad || this.#fc1.bias?.requiresGrad === true;
  }

  /** Runs fc2 on the activation of h. */
  #runFc2(
    fc2: LinearParts,
    { h, fusions }: ActivationState,
    call: LinearCall,
    grad: boolean,
    requiresGrad: boolean,
  ): LinearResult {
    const { kind, gated: isGated } = this.#form;
    const shape = this.#activationShape(h.shape);
    const value = (): Value => (isGated ? gated(h, { kind }) : activation(h, { kind }));
    const quantize = (quantizer: Quantizer): QuantizedTensor => quantizer.activationQuantize(h, this.#form);
    const input = { shape, dtype: h.dtype, backend: h.backend, requiresGrad, createsValue: true, value };
    return linearForward(fc2, fusions.value ? { ...input, quantize } : input, call, grad);
  }

  /** Runs the backward pass of the activation and of fc1. Frees h and `grad`, the gradient of the activation's result. */
  #fc1Backward(
    { h, result, fusions }: ActivationState,
    grad: Gradient | undefined,
    pass: BackwardPass,
  ): LinearGradients {
    if (!grad) return {};
    const dact = wideOf("LayerNormMLP: the gradient of the activation", grad);
    const { kind, gated: isGated } = this.#form;
    const bias = this.#fc1.bias?.requiresGrad === true;
    const biasSource =
      fusions.gradient && bias ? activationBackward(dact, h, { kind, outDtype: "f32" }) : undefined;
    const fuses = fusions.gradient || (fusions.gradientWithoutBias && !bias);
    const quantizer = fuses ? result.gradQuantizer?.() : undefined;
    const dh = quantizer
      ? quantizer.activationQuantize(h, { ...this.#form, grad: dact })
      : (biasSource ?? (isGated ? gatedBackward : activationBackward)(dact, h, { kind }));
    for (const each of [dact, h]) each.dispose();
    return result.backward(dh, pass, { biasSource: quantizer && biasSource, temporary: true });
  }
}
