/** The autocast region of one layer, whose recipe may replace the region's. */
import { currentRegion, type Region } from "../autocast.js";
import type { Recipe } from "../recipes/recipe.js";
import type { LayerInspection } from "./inspection/layer-inspection.js";

/** The key of a layer's own recipe: null for high precision, undefined for the recipe of the region. */
export const LAYER_RECIPE = Symbol("layerRecipe");

/** The key of the `LayerInspection` by which an `Inspector` observes or changes a layer. */
export const LAYER_INSPECTION = Symbol("layerInspection");

/** A quantization state that may have a recipe of its own, and an `Inspector`. */
export interface HasLayerRecipe {
  [LAYER_RECIPE]: Recipe | null | undefined;
  [LAYER_INSPECTION]: LayerInspection | undefined;
}

/** Whether a quantization state is one of the library's, and not one that a module defines itself. */
export function hasLayerRecipe(state: object): state is HasLayerRecipe {
  return LAYER_RECIPE in state;
}

/** Returns the innermost region as it applies to a layer. Undefined outside of all regions. */
export function layerRegion(layer: HasLayerRecipe): Region | undefined {
  const region = currentRegion();
  const recipe = layer[LAYER_INSPECTION]?.disables ? null : layer[LAYER_RECIPE];
  if (!region || recipe === undefined) return region;
  return recipe === null ? { ...region, enabled: false, calibrating: false } : { ...region, recipe };
}
