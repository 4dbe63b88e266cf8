/** Makes the quantizer of a role under a recipe. */
import { ArgumentError } from "../errors.js";
import { quantizerNamed } from "../quantizers/named.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import type { Tensor } from "../tensor/tensor.js";
import { CustomRecipe } from "./custom.js";
import { type Recipe, StandardRecipe } from "./recipe.js";
import type { Role } from "./table.js";

/** State that quantizers refer to but do not own. */
export interface QuantizerState {
  /** Delayed scaling only: the scale and, optionally, the tensor that records amaxes; [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  /** The source of random bits for stochastic rounding. */
  readonly random: RandomState;
}

/**
 * The quantizer of `role` under `recipe`. Delayed scaling needs `state.scale`. Throws `ArgumentError` for a recipe that is
 * neither standard nor custom, and for an unknown row, format or tile.
 */
export function quantizerFor(recipe: Recipe, role: Role, state: QuantizerState): Quantizer {
  if (recipe instanceof CustomRecipe) return recipe.quantizer(role);
  if (recipe instanceof StandardRecipe) return standardQuantizer(recipe, role, state);
  throw new ArgumentError(
    `${recipe.constructor.name} does not say how to quantize; extend StandardRecipe, or give CustomRecipe a quantizerFactory`,
  );
}

function standardQuantizer(recipe: StandardRecipe, role: Role, state: QuantizerState): Quantizer {
  return quantizerNamed(recipe.row.quantizer, {
    ...recipe.qparams(role),
    ...state,
    format: recipe.elementFormat(role),
  });
}
