/** The recipe with custom quantizers. */
import { ArgumentError } from "../errors.js";
import { callable, describe, needed, optionsOf } from "../options.js";
import { IdentityQuantizer } from "../quantizers/hybrid.js";
import { COMMON_OPTIONS, type CommonRecipeOptions, Recipe } from "./recipe.js";
import {
  isOperandQuantizer,
  type LayerPosition,
  type OperandQuantizer,
  type QuantizerRole,
  UNNAMED,
} from "./role.js";
import { passOf, RECIPES, type Role } from "./table.js";

/**
 * Creates the quantizer of a role. `where` describes the tensor and its layer. null keeps the tensor in high precision, as an
 * `IdentityQuantizer` does.
 */
export type QuantizerFactory = (role: Role, where: QuantizerRole) => OperandQuantizer | null;

/** Options of `CustomRecipe`: a function that creates the quantizer of each role, and the options of every recipe. */
export interface CustomRecipeOptions extends CommonRecipeOptions {
  /** Creates the quantizer of a role. It is called once for each role of each layer, and by `checkRecipeSupport`. */
  readonly quantizerFactory: QuantizerFactory;
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
  readonly quantizerFactory: QuantizerFactory;

  constructor(options: CustomRecipeOptions) {
    const ownOptions = checkOptions("CustomRecipe", options);
    super("custom", RECIPES.current.useSplitAccumulator, ownOptions);
    this.quantizerFactory = ownOptions.quantizerFactory;
  }

  /**
   * Calls the function for a role of a linear layer without a name, and returns its quantizer: an `IdentityQuantizer` for null.
   * Throws `ArgumentError` for an unknown role, or if the function returns anything else.
   */
  quantizer(role: Role): OperandQuantizer {
    return this.quantizerOf(role, UNNAMED);
  }

  /** @internal As `quantizer`, for a layer with a name. */
  quantizerOf(role: Role, { moduleType, name }: LayerPosition): OperandQuantizer {
    passOf(role);
    const quantizer = this.quantizerFactory(role, Object.freeze({ moduleType, tensorType: role, name }));
    if (quantizer === null) return new IdentityQuantizer();
    if (isOperandQuantizer(quantizer)) return quantizer;
    throw new ArgumentError(
      `CustomRecipe: quantizerFactory returned ${describe(quantizer)} for ${role}; it must return a quantizer, or null for high precision`,
    );
  }
}
