/** The quantizers of one call of a linear layer in a recomputed region, held for its second run. */
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import type { ForwardRole } from "../recipes/table.js";
import type { Value } from "../tape/value.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";
import type { BackwardQuantization, CallQuantization, RecipeInForce } from "./recipe-in-force.js";

/**
 * A snapshot of a call's quantization, taken as its first run begins. In the second run it records no amaxes of forward
 * tensors, because the first run has recorded them.
 */
export class HeldCall implements CallQuantization {
  readonly #inForce: RecipeInForce;
  /** The scales of the first run, [3]; delayed scaling only. */
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

  quantizer(role: ForwardRole): Quantizer {
    return (this.#scales && this.#inForce.quantizerBy(this.#scales, role)) ?? this.#inForce.quantizer(role);
  }

  /** As in the first run; its saved tensors are among `values`. */
  forBackward(): BackwardQuantization {
    return { ...this.#backward, saved: [] };
  }

  get weight(): QuantizedTensor | undefined {
    return this.#weight;
  }

  holdWeight(cached: QuantizedTensor): void {
    this.#weight = persistent(cached.share());
  }

  /** The tensors that it holds, which the region's node disposes of after its backward pass. No scope owns them. */
  get values(): readonly Value[] {
    return [this.#scales, this.#weight, ...this.#backward.saved].filter((each) => each !== undefined);
  }
}
