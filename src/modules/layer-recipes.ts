/** Recipes of single layers, chosen by their names. */
import { ArgumentError } from "../errors.js";
import { anyListOf, type Domain, instance, needed, nested, optionsOf, text } from "../options.js";
import { type Recipe, requireRecipe } from "../recipes/recipe.js";
import { isGlob, matchesGlob } from "../text/glob.js";
import { nearest } from "../text/nearest.js";
import { type HasLayerRecipe, LAYER_RECIPE } from "./layer-region.js";
import { Module } from "./module.js";
import type { QuantizationState } from "./quantization-state.js";

/** A rule of `setLayerRecipes`. */
export interface LayerRecipe {
  /**
   * The layers: the name of a linear product (a key of `namedQuantizations`) or of a module that contains it. `*` stands for any
   * characters, dots included, and `?` for one.
   */
  readonly layers: string;
  /** The recipe of these layers in any autocast region that is enabled, or null: they compute in high precision. */
  readonly recipe: Recipe | null;
}

const recipeOrNull: Domain = (user, _name, recipe) => (recipe === null ? null : requireRecipe(user, recipe));
const checkRule = optionsOf<LayerRecipe>({ layers: needed(text), recipe: needed(recipeOrNull) });
const checkRules = anyListOf(nested(checkRule));
const requireModule = instance(Module, "a module");

/**
 * Chooses recipes for layers of `module` by name, in place of the recipe of the autocast region. The last rule that matches a
 * layer applies; a layer without a rule has the recipe of the region. Earlier rules are replaced, so an empty list ends all.
 * Outside of regions, and where the innermost one is not enabled, rules change nothing. Rules are no part of a checkpoint.
 *
 * The last layers in bf16: `setLayerRecipes(model, [{ layers: "layers.3?", recipe: null }])`.
 *
 * @throws `ArgumentError` for an argument that is not a module, rules that are not a list of `LayerRecipe`, a rule that matches
 * no layer, and one that matches a quantization state that the module defines itself. In each case nothing has changed.
 */
export function setLayerRecipes(module: Module, rules: readonly LayerRecipe[]): void {
  const user = "setLayerRecipes";
  requireModule(user, "module", module);
  const ownRules = checkRules(user, "rules", rules) as readonly LayerRecipe[];
  const layers = [...module.namedQuantizations()];
  const chosen = new Map<QuantizationState, Recipe | null>();
  for (const { layers: pattern, recipe } of ownRules) {
    const matches = layers.filter(([name]) => containersOf(name).some((each) => matchesGlob(pattern, each)));
    if (matches.length === 0) throw noMatch(user, pattern, layers);
    for (const [name, state] of matches) {
      if (!hasLayerRecipe(state))
        throw new ArgumentError(
          `${user}: ${name} is a quantization state that a module defines itself, which takes the recipe of the region; leave it out`,
        );
      chosen.set(state, recipe);
    }
  }
  for (const [, state] of layers) if (hasLayerRecipe(state)) state[LAYER_RECIPE] = chosen.get(state);
}

/** The name of a product, and the names of the modules that contain it. */
function containersOf(name: string): readonly string[] {
  const parts = name.split(".");
  return parts.map((_, i) => parts.slice(0, i + 1).join("."));
}

function hasLayerRecipe(state: QuantizationState): state is QuantizationState & HasLayerRecipe {
  return LAYER_RECIPE in state;
}

function noMatch(
  user: string,
  pattern: string,
  layers: readonly (readonly [string, QuantizationState])[],
): ArgumentError {
  const names = [...new Set(layers.flatMap(([name]) => containersOf(name)))];
  const near = isGlob(pattern) ? undefined : nearest(pattern, names);
  const hint = near === undefined ? `; there are ${names.slice(0, 8).join(", ")}` : `; did you mean ${near}?`;
  return new ArgumentError(
    `${user}: no layer matches "${pattern}"${layers.length === 0 ? "; the module has no linear products" : hint}`,
  );
}
