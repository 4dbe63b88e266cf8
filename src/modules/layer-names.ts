/** The layers of a module that a pattern of names selects. */
import { ArgumentError } from "../errors.js";
import { isGlob, matchesGlob } from "../text/glob.js";
import { nearest } from "../text/nearest.js";
import { type HasLayerRecipe, hasLayerRecipe } from "./layer-region.js";
import type { QuantizationState } from "./quantization-state.js";

type NamedState = readonly [name: string, state: QuantizationState];

/** A linear product or an attention of a module, by its key in `namedQuantizations`. */
export type NamedLayer = readonly [name: string, state: QuantizationState & HasLayerRecipe];

/**
 * Returns the layers whose name, or the name of a module that contains them, matches `pattern`. Throws `ArgumentError` if there
 * is none, and if one is a quantization state that a module defines itself.
 */
export function matchingLayers(
  caller: string,
  layers: readonly NamedState[],
  pattern: string,
): readonly NamedLayer[] {
  const matches = layers.filter(([name]) =>
    containerNames(name).some((container) => matchesGlob(pattern, container)),
  );
  if (matches.length === 0) throw noMatch(caller, pattern, layers);
  return matches.map(([name, state]) => {
    if (hasLayerRecipe(state)) return [name, state] as const;
    throw new ArgumentError(
      `${caller}: ${name} is a quantization state that a module defines itself, which takes the recipe of the region; leave it out`,
    );
  });
}

/** The name of a product, and the names of the modules that contain it. */
function containerNames(name: string): readonly string[] {
  const segments = name.split(".");
  return segments.map((_, i) => segments.slice(0, i + 1).join("."));
}

function noMatch(caller: string, pattern: string, layers: readonly NamedState[]): ArgumentError {
  const names = [...new Set(layers.flatMap(([name]) => containerNames(name)))];
  const suggestion = isGlob(pattern) ? "" : nearest(pattern, names);
  const hint = suggestion || `; there are ${names.slice(0, 8).join(", ")}`;
  return new ArgumentError(
    `${caller}: no layer matches "${pattern}"${layers.length === 0 ? "; the module has no linear products" : hint}`,
  );
}
