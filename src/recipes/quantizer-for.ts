/** From a recipe and a role to the quantizer. */
import { ArgumentError } from "../errors.js";
import { quantizerNamed } from "../quantizers/named.js";
import type { Quantizer, RandomState } from "../quantizers/quantizer.js";
import type { Tensor } from "../tensor/tensor.js";
import { CustomRecipe } from "./custom.js";
import { type Recipe, StandardRecipe } from "./recipe.js";
import type { Role } from "./table.js";

/** What a quantizer refers to rather than has. */
export interface QuantizerState {
  /** Of delayed scaling: the scale, and what takes amaxes if anything does; [1]. */
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  /** Of stochastic rounding. */
  readonly random: RandomState;
}

/**
 * The quantizer of `role` under `recipe`, in which `state.scale` is needed for delayed scaling alone. Throws `ArgumentError`
 * for a recipe that is neither a row of the table nor the caller's quantizers, and for a row, a format or a tile that there is
 * not.
 */
export function quantizerFor(recipe: Recipe, role: Role, state: QuantizerState): Quantizer {
  if (recipe instanceof CustomRecipe) return recipe.quantizer(role);
  if (recipe instanceof StandardRecipe) return standardQuantizer(recipe, role, state);
  throw new ArgumentError(
    `${recipe.constructor.name} says nothing about quantizers; extend StandardRecipe, or give CustomRecipe a quantizerFactory`,
  );
}

function standardQuantizer(recipe: StandardRecipe, role: Role, state: QuantizerState): Quantizer {
  return quantizerNamed(recipe.row.quantizer, {
    ...recipe.qparams(role),
    ...state,
    format: recipe.elementFormat(role),
  });
}
