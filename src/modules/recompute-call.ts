/**
 * The quantization of one call of a linear layer in a recomputed region, held from the first run of the region for the second.
 */
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import type { ForwardRole } from "../recipes/table.js";
import type { Value } from "../tape/value.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";
import type { BackwardQuantization, CallQuantization, RecipeInForce } from "./recipe-in-force.js";
import type { Sharding } from "./sharding.js";

/**
 * The quantization of a call as it was when the first run began. A call in the second run uses it and records no amaxes of
 * forward tensors, because the first run has recorded them.
 */
export class HeldCall implements CallQuantization {
  readonly #inForce: RecipeInForce;
  /** A copy of the scales that the first run used, [3]. Undefined unless the recipe is delayed scaling. */
  readonly #scales: Tensor<"f32"> | undefined;
  readonly #backward: BackwardQuantization;
  #weight: QuantizedTensor | undefined;

  constructor(inForce: RecipeInForce) {
    this.#inForce = inForce;
    this.#scales = inForce.forward && persistent(inForce.forward.scale.clone());
    this.#backward = inForce.forBackward();
    for (const each of this.#backward.saved) persistent(each);
  }

  get recipe(): Recipe {
    return this.#inForce.recipe;
  }

  quantizer(role: ForwardRole, whole = false): Quantizer {
    const held = this.#scales && this.#inForce.quantizerBy(this.#scales, role, whole);
    return held ?? this.#inForce.quantizer(role, whole);
  }

  weightQuantizer(sharding: Sharding | undefined): Quantizer {
    if (!sharding) return this.quantizer("weight");
    if (!this.#scales) return this.#inForce.weightQuantizer(sharding);
    return this.#inForce.rowsQuantizerBy(this.#scales, sharding);
  }

  /** Does nothing, because the first run has recorded the amax. */
  shareWeightAmax(): void {}

  /** Returns the backward quantization of the first run. `saved` is empty, because `values` lists those tensors. */
  forBackward(): BackwardQuantization {
    return { ...this.#backward, saved: [] };
  }

  get weight(): QuantizedTensor | undefined {
    return this.#weight;
  }

  holdWeight(cached: QuantizedTensor): void {
    this.#weight = persistent(cached.share());
  }

  /**
   * The tensors held for the second run. No scope owns them; the region's graph node disposes of them after its backward pass.
   */
  get values(): readonly Value[] {
    return [this.#scales, this.#weight, ...this.#backward.saved].filter((each) => each !== undefined);
  }
}
