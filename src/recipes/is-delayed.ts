/** The test for delayed scaling. It is not part of the public API. */
import { DelayedScaling } from "./per-tensor.js";
import type { Recipe } from "./recipe.js";

/**
 * Whether the recipe is delayed scaling. A layer then keeps the amaxes of earlier steps and computes scales from them when an
 * autocast region ends.
 */
export function isDelayed(recipe: Recipe): recipe is DelayedScaling {
  return recipe instanceof DelayedScaling;
}
