/** Construction of the quantizer of a tensor role under a recipe. */
import { ArgumentError } from "../errors.js";
import { quantizerNamed } from "../quantizers/named.js";
import { Quantizer } from "../quantizers/quantizer.js";
import type { RandomState } from "../quantizers/random-state.js";
import type { Shard } from "../quantizers/shard.js";
import type { Tensor } from "../tensor/tensor.js";
import { CustomRecipe } from "./custom.js";
import { type Recipe, StandardRecipe } from "./recipe.js";
import type { LayerPosition, OperandQuantizer } from "./role.js";
import type { Role } from "./table.js";

/** Tensors and random state that a quantizer uses but does not own. */
export interface QuantizerState {
  /** For delayed scaling: the scale and, optionally, the tensor that records the amax, f32 [1] each. */
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  /** The source of random bits for stochastic rounding. */
  readonly random: RandomState;
  /** The part of a whole tensor that will be quantized. Not used for a custom recipe, whose quantizers have their own option. */
  readonly shard?: Shard | undefined;
  /** Whether the rows of several ranks will be gathered. */
  readonly gathered?: boolean | undefined;
}

/**
 * Returns the quantizers of the copies of the tensor of `role` in the layer `position` under `recipe`. Delayed scaling requires
 * `state.scale`. Throws as `quantizerFor`.
 */
export function roleQuantizerFor(
  recipe: Recipe,
  role: Role,
  state: QuantizerState,
  position: LayerPosition,
): OperandQuantizer {
  return recipe instanceof CustomRecipe
    ? recipe.quantizerOf(role, position)
    : quantizerFor(recipe, role, state);
}

/**
 * Returns the quantizer of `role` under `recipe`. Delayed scaling requires `state.scale`. Throws `ArgumentError` for a recipe
 * that is neither a `StandardRecipe` nor a `CustomRecipe`, an unknown role, settings that the quantizer does not have, or a
 * custom recipe that quantizes the copies of the tensor differently or not at all.
 */
export function quantizerFor(recipe: Recipe, role: Role, state: QuantizerState): Quantizer {
  if (recipe instanceof CustomRecipe) return plainQuantizer(role, recipe.quantizer(role));
  if (recipe instanceof StandardRecipe) return standardQuantizer(recipe, role, state);
  throw new ArgumentError(
    `${recipe.constructor.name} does not say how to quantize; extend StandardRecipe, or give CustomRecipe a quantizerFactory`,
  );
}

/** Returns `quantizer` if it makes both copies. Throws `ArgumentError` otherwise. */
export function plainQuantizer(role: Role, quantizer: OperandQuantizer): Quantizer {
  if (quantizer instanceof Quantizer) return quantizer;
  throw new ArgumentError(
    `CustomRecipe: quantizerFactory returned a ${quantizer.constructor.name} for ${role}, where one quantizer has to make both copies; return a quantizer such as new MXFP8Quantizer()`,
  );
}

function standardQuantizer(recipe: StandardRecipe, role: Role, state: QuantizerState): Quantizer {
  return quantizerNamed(recipe.row.quantizer, {
    ...recipe.qparams(role),
    ...state,
    format: recipe.elementFormat(role),
  });
}
