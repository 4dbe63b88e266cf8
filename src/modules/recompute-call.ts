/** What one call of a linear layer has quantized with, whatever the layer takes up before it is computed again. */
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Recipe } from "../recipes/recipe.js";
import type { ForwardRole } from "../recipes/table.js";
import type { Value } from "../tape/value.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";
import type { BackwardQuantization, CallQuantization, RecipeInForce } from "./recipe-in-force.js";

/** Made as the call begins the first time. It records no amax of forward tensors, which that has recorded. */
export class HeldCall implements CallQuantization {
  readonly #inForce: RecipeInForce;
  /** [3], as they were; of delayed scaling. */
  readonly #scales: Tensor<"f32"> | undefined;
  readonly #behind: BackwardQuantization;
  #weight: QuantizedTensor | undefined;

  constructor(inForce: RecipeInForce) {
    this.#inForce = inForce;
    this.#scales = inForce.forward && persistent(inForce.forward.scale.clone());
    this.#behind = inForce.forBackward();
    for (const each of this.#behind.saved) persistent(each);
  }

  get recipe(): Recipe {
    return this.#inForce.recipe;
  }

  quantizer(role: ForwardRole): Quantizer {
    return (this.#scales && this.#inForce.quantizerBy(this.#scales, role)) ?? this.#inForce.quantizer(role);
  }

  /** As the first time; what it has saved is among `values`. */
  forBackward(): BackwardQuantization {
    return { ...this.#behind, saved: [] };
  }

  get weight(): QuantizedTensor | undefined {
    return this.#weight;
  }

  holdWeight(cached: QuantizedTensor): void {
    this.#weight = persistent(cached.share());
  }

  /** What it is made of, to be disposed of once the call has been gone back through. No scope owns it. */
  get values(): readonly Value[] {
    return [this.#scales, this.#weight, ...this.#behind.saved].filter((each) => each !== undefined);
  }
}
