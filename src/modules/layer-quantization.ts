/** The quantization of a layer that is defined outside of the package. */
import { isFirstFp8Module } from "../autocast.js";
import { guardReceivers, isObject } from "../brand.js";
import { ArgumentError, DisposedError } from "../errors.js";
import { hasGivenScale } from "../formats/block.js";
import { boolean, instance, oneOf, optionsOf, text } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { type RandomState, randomState } from "../quantizers/random-state.js";
import type { AmaxReductionGroup } from "../quantizers/shard.js";
import type { Recipe } from "../recipes/recipe.js";
import { type BackwardRole, type ForwardRole, ROLES } from "../recipes/table.js";
import type { BackwardPass } from "../tape/node.js";
import { QuantizedTensor, ROWWISE } from "../tensor/quantized.js";
import { requireScalar, requireWide } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";
import type { LayerInspection } from "./inspection/layer-inspection.js";
import { LAYER_INSPECTION, LAYER_RECIPE, layerRegion } from "./layer-region.js";
import { isCached, type WeightUse } from "./linear/weight-cache.js";
import { defaultRandom } from "./module.js";
import { Parameter } from "./parameter.js";
import { LinearQuantization } from "./quantization.js";
import type { QuantizationSnapshot, QuantizationState } from "./quantization-state.js";
import { currentPhase } from "./recompute-phase.js";

/** Options of `LayerQuantization`. All fields are optional. */
export interface LayerQuantizationOptions {
  /** The source of random bits for stochastic rounding. Default: `defaultRandom` of the weight's backend. */
  readonly random?: RandomState | undefined;
  /** The name of the layer, which the quantizers of a `CustomRecipe` get. Default: empty. */
  readonly name?: string | undefined;
}

const checkOptions = optionsOf<LayerQuantizationOptions>({ random: randomState, name: text });
const requireParameter = instance(Parameter, "a parameter");
const forwardRole = oneOf(ROLES.forward);
const backwardRole = oneOf(ROLES.backward);

/** How one call of a layer uses its quantized weight. */
export interface LayerWeightRequest extends WeightUse {
  /**
   * Whether the columnwise copy is needed too, which the gradient of the input reads. For a cached weight, the first run of
   * `recompute` creates it in any case. Default false.
   */
  readonly columnwise?: boolean | undefined;
}

const checkRequest = optionsOf<LayerWeightRequest>(
  { columnwise: boolean, isFirstMicrobatch: boolean, skipFp8WeightUpdate: requireScalar },
  "request",
);

/** The quantization of one call of a layer, under the recipe that was in force as the call began. */
export interface LayerCall {
  /** The recipe of the region. */
  readonly recipe: Recipe;
  /** The region's `amaxReductionGroup`, or undefined. */
  readonly group: AmaxReductionGroup | undefined;
  /** Whether the call is the first one that quantizes in the outermost region. */
  readonly isFirstModule: boolean;
  /**
   * Returns the quantizer of a tensor of the forward pass. It creates the copies that its last call of `setUsage` selected. Under
   * delayed scaling it records amaxes.
   *
   * @throws `ArgumentError` for an unknown role, if another call of the layer has begun, or if a `CustomRecipe` does not make
   * both copies of the tensor by one quantizer.
   */
  quantizer(role: ForwardRole): Quantizer;
  /**
   * Returns the quantized weight. A weight of `quantizedModelInit` is returned with the copies that it has. The caller disposes
   * of the result, or a scope does.
   *
   * @throws `ArgumentError` for an unknown option or an invalid option value, or if another call of the layer has begun.
   */
  weight(request?: LayerWeightRequest): QuantizedTensor;
  /** The quantization of the backward pass of this call. */
  readonly backward: LayerBackward;
}

/** The quantization of the backward pass of one call of a layer. The layer may change its recipe before that pass. */
export interface LayerBackward {
  /** The tensors that `differentiable` must get in `saved`, so that they live until the backward pass. */
  readonly saved: readonly Tensor[];
  /** Begins the backward pass: new scales of gradients are computed when it ends. Call it before gradients are quantized. */
  begin(pass: BackwardPass): void;
  /**
   * Returns the quantizer of a gradient.
   *
   * @throws `ArgumentError` for an unknown role, or if a `CustomRecipe` does not make both copies of the gradient by one
   * quantizer.
   */
  quantizer(role: BackwardRole): Quantizer;
}

/**
 * The quantization of one product of a custom layer, as `Linear` has for its product. It keeps the quantizers of a weight, an
 * input, a result and their gradients under the recipe of the last region, the scales and histories of delayed scaling, and the
 * weight that is cached over microbatches. Return it from `quantizations()` of the module, so that checkpoints have its state and
 * `dispose` frees it. `recompute` works as with `Linear`. It corresponds to `fp8_meta` of TransformerEngine's base class of
 * modules.
 *
 * @throws `ArgumentError` for a weight that is not a parameter, an unknown option or an invalid option value.
 */
export class LayerQuantization implements QuantizationState {
  static {
    guardReceivers(this, (x) => isObject(x) && #weight in x);
  }

  readonly #weight: Parameter;
  readonly #quantization: LinearQuantization;
  /** The call that has begun last. */
  #lastCall: object | undefined;
  #isDisposed = false;
  /** @internal The recipe of the layer in place of the region's, which `setLayerRecipes` sets. */
  [LAYER_RECIPE]: Recipe | null | undefined;

  constructor(weight: Parameter, options: LayerQuantizationOptions = {}) {
    requireParameter("LayerQuantization", "weight", weight);
    const ownOptions = checkOptions("LayerQuantization", options);
    const { random = defaultRandom(weight.backend), name = "" } = ownOptions;
    this.#weight = weight;
    this.#quantization = new LinearQuantization(weight.backend, random, undefined, () => ({
      moduleType: "linear",
      name,
    }));
  }

  /** @internal How an `Inspector` observes or changes the layer. */
  get [LAYER_INSPECTION](): LayerInspection | undefined {
    return this.#quantization[LAYER_INSPECTION];
  }

  /** @internal Sets how an `Inspector` observes or changes the layer. */
  set [LAYER_INSPECTION](inspection: LayerInspection | undefined) {
    this.#quantization[LAYER_INSPECTION] = inspection;
  }

  /**
   * Begins a call of the layer. Returns its quantization, or undefined where layers do not quantize: outside of regions and in
   * regions that are not enabled. New scales are computed when the outermost region ends.
   *
   * @throws `UnsupportedError` for a recipe that the backend does not support, `ArgumentError` for a weight that was quantized in
   * another way than the recipe requires, `DisposedError` after `dispose`. In each case nothing has changed.
   */
  begin(): LayerCall | undefined {
    this.#requireLive("begin");
    const region = layerRegion(this);
    if (!region?.enabled) return undefined;
    const isFirstModule = isFirstFp8Module();
    const weight = this.#weight;
    const quantization = this.#quantization;
    const { recipe, group } = region;
    quantization.beginForward(region, weight, checksNothing);
    const backward = quantization.forBackward();
    const token = {};
    this.#lastCall = token;
    const requireLastCall = (caller: string): void => {
      if (this.#lastCall === token) return;
      throw new ArgumentError(
        `${caller}: another call of the layer has begun; a call quantizes its tensors before the next one begins`,
      );
    };
    return {
      recipe,
      group,
      isFirstModule,
      quantizer(role) {
        forwardRole("LayerCall.quantizer", "role", role);
        requireLastCall("LayerCall.quantizer");
        return quantization.quantizer(role);
      },
      weight(request) {
        const { columnwise = false, ...use } = checkRequest("LayerCall.weight", request ?? {}, "request");
        requireLastCall("LayerCall.weight");
        const { value } = weight;
        if (value instanceof QuantizedTensor) return value.share();
        // the first run does not know whether the backward pass of the second run needs the columnwise copy of a weight that both
        // cache
        const serves = columnwise || (isCached(use) && currentPhase()?.pass === "first");
        return quantization.weight(weight, { ...use, columnwise: serves });
      },
      backward: {
        saved: backward.saved,
        begin: (pass) => backward.registerUpdates(pass, group),
        quantizer(role) {
          backwardRole("LayerBackward.quantizer", "role", role);
          return backward.quantizer(role);
        },
      },
    };
  }

  /**
   * Records the amaxes of `input` and the weight in a region that calibrates and is not enabled. Elsewhere, and under recipes
   * that record no amaxes, it does nothing. Call it before the layer computes in high precision.
   *
   * @throws `DTypeError` for an input that is not f32, bf16 or f16, `ShapeError` for an input or a weight that the format's
   * blocks do not divide, `ArgumentError` for an input on another backend than the weight's, `UnsupportedError` and
   * `ArgumentError` as `begin`, `DisposedError` for a disposed tensor and after `dispose`.
   */
  calibrate(input: Tensor): void {
    this.#requireLive("calibrate");
    requireWide("calibrate", "input", input);
    if (input.backend !== this.#weight.backend)
      throw new ArgumentError(
        "calibrate: the input and the weight live on different backends; move them to one",
      );
    const region = layerRegion(this);
    if (!region || region.enabled || !region.calibrating) return;
    const weight = this.#weight;
    const quantization = this.#quantization;
    quantization.beginForward(region, weight, checksNothing);
    this.#lastCall = undefined;
    const { rowwise: inputs } = quantization.copies("input");
    if (!inputs || !hasGivenScale(inputs.spec)) return;
    inputs.setUsage(ROWWISE).quantize(input).dispose();
    if (!(weight.value instanceof QuantizedTensor))
      quantization.weight(weight, { columnwise: false }).dispose();
  }

  /** Forgets scales, histories and the cached weight. The next call begins with new ones. */
  reset(): void {
    this.#quantization.restore(undefined);
  }

  /** Copies the scales and amax histories to the host, and waits for the device. Undefined if there are none. */
  snapshotSync(): QuantizationSnapshot | undefined {
    return this.#quantization.snapshotSync();
  }

  /**
   * Sets the state to `snapshot`, or to none if it is undefined.
   *
   * @throws `ArgumentError` for an invalid snapshot, with nothing changed.
   */
  restore(snapshot: QuantizationSnapshot | undefined): void {
    this.#quantization.restore(snapshot);
  }

  /** Frees the tensors of the state. A second call does nothing. */
  dispose(): void {
    this.#isDisposed = true;
    this.#quantization.dispose();
  }

  #requireLive(op: string): void {
    if (this.#isDisposed) throw new DisposedError(`${op}: the quantization of a layer`);
  }
}

/** Checks no shapes: quantizers and products refuse what does not fit. */
function checksNothing(): void {}
