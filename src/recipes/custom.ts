/** Quantizers of the caller's own as a recipe. */
import { ArgumentError } from "../errors.js";
import { Quantizer } from "../quantizers/quantizer.js";
import { describe, type ProductOptions, Recipe } from "./recipe.js";
import { RECIPES, type Role } from "./table.js";

export interface CustomRecipeOptions extends ProductOptions {
  /** Makes the quantizer of a role; called once for each role of each layer. */
  readonly quantizerFactory: (role: Role) => Quantizer;
}

/** Quantizers of the caller's own. */
export class CustomRecipe extends Recipe {
  readonly quantizerFactory: (role: Role) => Quantizer;

  constructor(options: CustomRecipeOptions) {
    super("custom", RECIPES.current.splitAccumulator, options ?? {});
    if (typeof options?.quantizerFactory !== "function")
      throw new ArgumentError(
        "CustomRecipe: quantizerFactory is missing; give a function from a role to a quantizer",
      );
    this.quantizerFactory = options.quantizerFactory;
  }

  /** What the factory makes for a role. Throws `ArgumentError` where that is no quantizer. */
  quantizer(role: Role): Quantizer {
    const made = this.quantizerFactory(role);
    if (made instanceof Quantizer) return made;
    throw new ArgumentError(
      `CustomRecipe: quantizerFactory gave ${describe(made)} for ${role}; it has to give a quantizer`,
    );
  }
}
