/** The autocast region of one layer, whose recipe may replace the region's. */
import { currentRegion, type Region } from "../autocast.js";
import type { Recipe } from "../recipes/recipe.js";

/** The key of a layer's own recipe: null for high precision, undefined for the recipe of the region. */
export const LAYER_RECIPE = Symbol("layerRecipe");

/** A quantization state that may have a recipe of its own. */
export interface HasLayerRecipe {
  [LAYER_RECIPE]: Recipe | null | undefined;
}

/** Returns the innermost region as it applies to a layer. Undefined outside of all regions. */
export function layerRegion({ [LAYER_RECIPE]: recipe }: HasLayerRecipe): Region | undefined {
  const region = currentRegion();
  if (!region || recipe === undefined) return region;
  return recipe === null ? { ...region, enabled: false, calibrating: false } : { ...region, recipe };
}
