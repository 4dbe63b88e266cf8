/** Which recipe keeps scales from step to step; no part of the public names of recipes. */
import { DelayedScaling } from "./per-tensor.js";
import type { Recipe } from "./recipe.js";

/** Whether scales come from the amaxes of earlier steps, which a layer keeps and a region updates. */
export function isDelayed(recipe: Recipe): recipe is DelayedScaling {
  return recipe instanceof DelayedScaling;
}
