/** Tells delayed scaling from other recipes; not part of the public API. */
import { DelayedScaling } from "./per-tensor.js";
import type { Recipe } from "./recipe.js";

/** Whether scales follow from the amaxes of earlier steps, which a layer keeps and an autocast region updates. */
export function isDelayed(recipe: Recipe): recipe is DelayedScaling {
  return recipe instanceof DelayedScaling;
}
