/** The recipe with custom quantizers. */
import { ArgumentError } from "../errors.js";
import { callable, describe, needed, optionsOf } from "../options.js";
import { Quantizer } from "../quantizers/quantizer.js";
import { COMMON_OPTIONS, type CommonRecipeOptions, Recipe } from "./recipe.js";
import { passOf, RECIPES, type Role } from "./table.js";

/** Options of `CustomRecipe`: a function that creates the quantizer of each role, and the options of every recipe. */
export interface CustomRecipeOptions extends CommonRecipeOptions {
  /** Creates the quantizer of a role. It is called once for each role of each layer, and by `checkRecipeSupport`. */
  readonly quantizerFactory: (role: Role) => Quantizer;
}

const checkOptions = optionsOf<CustomRecipeOptions>({
  ...COMMON_OPTIONS,
  quantizerFactory: needed(callable),
});

/**
 * A recipe whose quantizers are created by a function of the caller.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class CustomRecipe extends Recipe {
  /** Creates the quantizer of a role. It is called once for each role of each layer, and by `checkRecipeSupport`. */
  readonly quantizerFactory: (role: Role) => Quantizer;

  constructor(options: CustomRecipeOptions) {
    const ownOptions = checkOptions("CustomRecipe", options);
    super("custom", RECIPES.current.useSplitAccumulator, ownOptions);
    this.quantizerFactory = ownOptions.quantizerFactory;
  }

  /**
   * Calls the function for a role and returns its quantizer. Throws `ArgumentError` for an unknown role, or if the function
   * returns anything but a quantizer.
   */
  quantizer(role: Role): Quantizer {
    passOf(role);
    const quantizer = this.quantizerFactory(role);
    if (quantizer instanceof Quantizer) return quantizer;
    throw new ArgumentError(
      `CustomRecipe: quantizerFactory returned ${describe(quantizer)} for ${role}; it must return a quantizer`,
    );
  }
}
