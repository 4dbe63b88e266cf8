/** Recipes of single layers, chosen by their names. */
import { anyListOf, type Domain, instance, needed, nested, optionsOf, text } from "../options.js";
import { type Recipe, requireRecipe } from "../recipes/recipe.js";
import { matchingLayers } from "./layer-names.js";
import { hasLayerRecipe, LAYER_RECIPE } from "./layer-region.js";
import { Module } from "./module.js";
import type { QuantizationState } from "./quantization-state.js";

/** A rule of `setLayerRecipes`. */
export interface LayerRecipe {
  /**
   * The layers: the name of a linear product or of attention (a key of `namedQuantizations`), or of a module that contains it.
   * `*` stands for any characters, dots included, and `?` for one.
   */
  readonly layers: string;
  /** The recipe of these layers in any autocast region that is enabled, or null: they compute in high precision. */
  readonly recipe: Recipe | null;
}

const recipeOrNull: Domain = (caller, _name, recipe) =>
  recipe === null ? null : requireRecipe(caller, recipe);
const checkRule = optionsOf<LayerRecipe>({ layers: needed(text), recipe: needed(recipeOrNull) });
const checkRules = anyListOf(nested(checkRule));
const requireModule = instance(Module, "a module");

/**
 * Chooses recipes for layers of `module` by name, in place of the recipe of the autocast region. The last rule that matches a
 * layer applies; a layer without a rule has the recipe of the region. Earlier rules are replaced, so an empty list removes all
 * rules. Outside of regions, and where the innermost one is not enabled, rules change nothing. Checkpoints do not contain rules.
 *
 * The last layers in bf16: `setLayerRecipes(model, [{ layers: "layers.3?", recipe: null }])`.
 *
 * @throws `ArgumentError` for an argument that is not a module, rules that are not a list of `LayerRecipe`, a rule that matches
 * no layer, and one that matches a quantization state that the module defines itself. In each case nothing has changed.
 */
export function setLayerRecipes(module: Module, rules: readonly LayerRecipe[]): void {
  const caller = "setLayerRecipes";
  requireModule(caller, "module", module);
  const ownRules = checkRules(caller, "rules", rules) as readonly LayerRecipe[];
  const layers = [...module.namedQuantizations()];
  const recipesByState = new Map<QuantizationState, Recipe | null>();
  for (const { layers: pattern, recipe } of ownRules)
    for (const [, state] of matchingLayers(caller, layers, pattern)) recipesByState.set(state, recipe);
  for (const [, state] of layers) if (hasLayerRecipe(state)) state[LAYER_RECIPE] = recipesByState.get(state);
}
