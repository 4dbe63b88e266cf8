/** Recipes by name, for programs that take a name. */
import { Float8BlockScaling, MXFP8BlockScaling, NVFP4BlockScaling } from "./block-scaled.js";
import { Float8CurrentScaling } from "./per-tensor.js";
import type { Recipe } from "./recipe.js";

interface NamedRecipe {
  /** The recipe in a few words. */
  readonly meaning: string;
  readonly create: () => Recipe;
}

/** The recipes that quantize a forward pass without a state, each by a name. */
export const NAMED_RECIPES = {
  "fp8-current": {
    meaning: "FP8 with a scale for each tensor",
    create: () => new Float8CurrentScaling(),
  },
  "fp8-block": {
    meaning: "FP8 with scales of 1x128 and 128x128 elements",
    create: () => new Float8BlockScaling(),
  },
  mxfp8: { meaning: "MXFP8", create: () => new MXFP8BlockScaling() },
  nvfp4: { meaning: "NVFP4 with an amax for each tensor", create: () => new NVFP4BlockScaling() },
  "nvfp4-row": {
    meaning: "NVFP4 with an amax for each row of activations",
    create: () => new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true }),
  },
} as const satisfies Readonly<Record<string, NamedRecipe>>;

/** The name of a recipe in `NAMED_RECIPES`. */
export type RecipeName = keyof typeof NAMED_RECIPES;
