/** A recipe of custom quantizers. */
import { ArgumentError } from "../errors.js";
import { callable, describe, needed, optionsOf } from "../options.js";
import { Quantizer } from "../quantizers/quantizer.js";
import { PRODUCT_OPTIONS, type ProductOptions, Recipe } from "./recipe.js";
import { passOf, RECIPES, type Role } from "./table.js";

/** What `CustomRecipe` takes: a factory of quantizers by role, and how products accumulate. */
export interface CustomRecipeOptions extends ProductOptions {
  /** Makes the quantizer of a role; called once for each role of each layer. */
  readonly quantizerFactory: (role: Role) => Quantizer;
}

const checkOptions = optionsOf<CustomRecipeOptions>({
  ...PRODUCT_OPTIONS,
  quantizerFactory: needed(callable),
});

/**
 * A recipe whose quantizers the caller makes.
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class CustomRecipe extends Recipe {
  /** Makes the quantizer of a role; called once for each layer and role. */
  readonly quantizerFactory: (role: Role) => Quantizer;

  constructor(options: CustomRecipeOptions) {
    checkOptions("CustomRecipe", options);
    super("custom", RECIPES.current.useSplitAccumulator, options);
    this.quantizerFactory = options.quantizerFactory;
  }

  /** The factory's quantizer for a role. Throws `ArgumentError` if it returned anything else. */
  quantizer(role: Role): Quantizer {
    passOf(role);
    const made = this.quantizerFactory(role);
    if (made instanceof Quantizer) return made;
    throw new ArgumentError(
      `CustomRecipe: quantizerFactory returned ${describe(made)} for ${role}; it must return a quantizer`,
    );
  }
}
