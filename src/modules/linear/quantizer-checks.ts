/** Checks of a recipe's quantizers before a forward pass. */
import { ArgumentError } from "../../errors.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { ForwardRole } from "../../recipes/table.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import type { RecipeState } from "../recipe-state.js";

/**
 * A check that throws if a call does not fit a recipe's quantizers. `gradient` is the quantizer of the result's gradient. It is
 * undefined in the second run of a recomputed region, because the first run was checked.
 */
export type FitCheck = (quantizer: (role: ForwardRole) => Quantizer, gradient: Quantizer | undefined) => void;

/** Runs `check` on the quantizers of a state. */
export function checkQuantizers(state: RecipeState, check: FitCheck): void {
  check((role) => state.quantizer(role), state.quantizer("gradOutput"));
}

/** Throws `ArgumentError` if the weight was quantized with another spec than the recipe's. */
export function requireSameSpec(spec: QuantizeSpec, state: RecipeState): void {
  const required = state.quantizer("weight").spec;
  const field = differingField(spec, required);
  if (field)
    throw new ArgumentError(
      `linear: the weight was quantized with ${field} ${spec[field]}, and ${state.recipe.constructor.name} requires ${required[field]}; give quantizedModelInit and autocast the same recipe`,
    );
}

/** Returns the name of the first field in which two specs differ, or undefined. */
function differingField(a: QuantizeSpec, b: QuantizeSpec): keyof QuantizeSpec | undefined {
  return (Object.keys(b) as (keyof QuantizeSpec)[]).find((key) => a[key] !== b[key]);
}
