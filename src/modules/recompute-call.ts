/**
 * The quantization of one call of a linear layer in a recomputed region. The first run creates it, and the second run uses it.
 */
import { ArgumentError } from "../errors.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { plainQuantizer } from "../recipes/quantizer-for.js";
import type { Recipe } from "../recipes/recipe.js";
import { copiesOf, type OperandQuantizer, type RoleCopies } from "../recipes/role.js";
import type { ForwardRole } from "../recipes/table.js";
import type { Sharding } from "../tape/sharding.js";
import type { Value } from "../tape/value.js";
import type { QuantizedTensor } from "../tensor/quantized.js";
import type { Tensor } from "../tensor/tensor.js";
import { persistent } from "./parameter.js";
import type { BackwardQuantization, CallQuantization, RecipeState } from "./recipe-state.js";
import type { HeldCall } from "./recompute-phase.js";

/**
 * The quantization of a call as it was when the first run made that call. A call in the second run uses it. It records no
 * amaxes of forward tensors, because the first run has recorded them.
 */
export class RecomputeCall implements CallQuantization, HeldCall {
  readonly #state: RecipeState;
  /** A copy of the scales that the first run used, [3]. Undefined unless the recipe is delayed scaling. */
  readonly #scales: Tensor<"f32"> | undefined;
  readonly #backward: BackwardQuantization;
  #weight: QuantizedTensor | undefined;
  #columnwiseWeight: QuantizedTensor | undefined;

  constructor(state: RecipeState) {
    this.#state = state;
    this.#scales = state.forward && persistent(state.forward.scale.clone());
    this.#backward = state.forBackward();
    for (const each of this.#backward.saved) persistent(each);
  }

  get recipe(): Recipe {
    return this.#state.recipe;
  }

  get isPlain(): boolean {
    return this.#state.isPlain;
  }

  copies(role: ForwardRole, gathered = false): RoleCopies {
    if (!this.#scales) return this.#state.copies(role, gathered);
    const operand = this.#state.operandWith(this.#scales, role, gathered) as OperandQuantizer;
    return copiesOf(operand, role, this.recipe.backwardOverride);
  }

  quantizer(role: ForwardRole, gathered = false): Quantizer {
    const withHeldScale = this.#scales && this.#state.operandWith(this.#scales, role, gathered);
    return withHeldScale ? plainQuantizer(role, withHeldScale) : this.#state.quantizer(role, gathered);
  }

  weightQuantizer(sharding: Sharding | undefined): Quantizer {
    if (!sharding) return this.quantizer("weight");
    if (!this.#scales) return this.#state.weightQuantizer(sharding);
    return this.#state.rowsQuantizerWith(this.#scales, sharding);
  }

  /** Does nothing, because the first run has recorded the amax. */
  reduceWeightAmax(): void {}

  /** Returns the backward quantization of the first run. `saved` is empty, because `values` lists those tensors. */
  forBackward(): BackwardQuantization {
    return { ...this.#backward, saved: [] };
  }

  get weight(): QuantizedTensor | undefined {
    return this.#weight;
  }

  keepWeight(cached: QuantizedTensor): void {
    this.#weight = persistent(cached.share());
  }

  get columnwiseWeight(): QuantizedTensor | undefined {
    return this.#columnwiseWeight;
  }

  keepColumnwiseWeight(cached: QuantizedTensor): void {
    this.#columnwiseWeight = persistent(cached.share());
  }

  get values(): readonly Value[] {
    return [this.#scales, this.#weight, this.#columnwiseWeight, ...this.#backward.saved].filter(
      (each) => each !== undefined,
    );
  }
}

/** The current forward pass: outside of recomputed regions, or a run of such a region. */
export type ForwardPass =
  | { readonly run: "only"; readonly quantization: RecipeState }
  /** `recompute` keeps the quantization for the second run. */
  | { readonly run: "first"; readonly quantization: RecipeState; readonly recompute: RecomputeCall }
  | { readonly run: "second"; readonly quantization: RecomputeCall };

/** Returns the error for a recomputed body whose second run differs from its first. */
export function differs(difference: string): ArgumentError {
  return new ArgumentError(
    `recompute: in its second run the body ${difference}; it must do the same in both runs`,
  );
}

/** Returns `pass`. Throws `ArgumentError` if it is undefined. */
export function requirePass(pass: ForwardPass | undefined): ForwardPass {
  if (pass) return pass;
  throw new ArgumentError("linear: this layer has no quantizers; call it in an autocast region");
}
