/** Checks of a recipe's quantizers before a forward pass. */
import { ArgumentError } from "../../errors.js";
import type { RoleCopies } from "../../recipes/role.js";
import type { ForwardRole } from "../../recipes/table.js";
import type { QuantizeSpec } from "../../tensor/quantized.js";
import type { RecipeState } from "../recipe-state.js";

/**
 * A check that throws if a call does not fit a recipe's quantizers. `copies` returns how each copy of a tensor is quantized, and
 * `gradient` is the same for the gradient of the result. `gradient` is undefined in the second run of a recomputed region,
 * because the first run was checked.
 */
export type FitCheck = (copies: (role: ForwardRole) => RoleCopies, gradient: RoleCopies | undefined) => void;

/** Runs `check` on the quantizers of a state. */
export function checkQuantizers(state: RecipeState, check: FitCheck): void {
  check((role) => state.copies(role), state.copies("gradOutput"));
}

/** Throws `ArgumentError` if the weight was quantized with another spec than the recipe's. */
export function requireSameSpec(spec: QuantizeSpec, state: RecipeState): void {
  const { rowwise, columnwise } = state.copies("weight");
  if (!rowwise || (columnwise && columnwise !== rowwise))
    throw new ArgumentError(
      "linear: the weight is quantized in another way than the recipe's, which makes its copies by other quantizers or keeps it in high precision; create the layer outside of quantizedModelInit",
    );
  const rowwiseSpec = rowwise.spec;
  const field = differingField(spec, rowwiseSpec);
  if (field)
    throw new ArgumentError(
      `linear: the weight was quantized with ${field} ${spec[field]}, and ${state.recipe.constructor.name} requires ${rowwiseSpec[field]}; give quantizedModelInit and autocast the same recipe`,
    );
}

/** Returns the name of the first field in which two specs differ, or undefined. */
function differingField(a: QuantizeSpec, b: QuantizeSpec): keyof QuantizeSpec | undefined {
  return (Object.keys(b) as (keyof QuantizeSpec)[]).find((key) => a[key] !== b[key]);
}
