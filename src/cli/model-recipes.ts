/** The recipes that commands offer for language models. */
import { Float8BlockScaling, MXFP8BlockScaling, NVFP4BlockScaling } from "../recipes/block-scaled.js";
import type { Recipe } from "../recipes/recipe.js";

/** Recipes under which the bits of a position depend only on its own sequence (docs/rollout.md). */
export const MODEL_RECIPES: readonly {
  readonly name: string;
  readonly meaning: string;
  readonly create: () => Recipe;
}[] = [
  { name: "block", meaning: "FP8 with scales of blocks", create: () => new Float8BlockScaling() },
  { name: "mxfp8", meaning: "MXFP8", create: () => new MXFP8BlockScaling() },
  {
    name: "nvfp4",
    meaning: "NVFP4 with an amax of each row of activations",
    create: () => new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true }),
  },
];
