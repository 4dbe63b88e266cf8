/**
 * The base classes of recipes. A standard recipe is a row of the table with options; a custom recipe has quantizers that the
 * caller creates.
 */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import type { ScalarFormat } from "../formats/scalar.js";
import {
  anything,
  boolean,
  type Domain,
  describe,
  fieldsOf,
  needed,
  nested,
  type OptionTable,
  oneOf,
  optionsOf,
} from "../options.js";
import { environmentText } from "./environment.js";
import {
  type AttentionTraits,
  BACKWARD_OVERRIDES,
  type BackwardOverride,
  FORMATS,
  type Format,
  type MMParams,
  type Product,
  passOf,
  type QParams,
  RECIPES,
  type RecipeKind,
  type RecipeRow,
  type Role,
  UNSUPPORTED_FORMATS,
} from "./table.js";

/** How each product accumulates. Default: as in the recipe's row of the table. */
export type ProductOptions = { readonly [P in Product]?: MMParams };

/** Options of every recipe. All fields are optional. */
export interface CommonRecipeOptions extends ProductOptions {
  /**
   * In which precision linear layers compute gradients: by the recipe, or in the dtype of the activations, from the original
   * input and weight or from the dequantized ones (numerics.md §6.1). Default: the environment variable NVTE_BACKWARD_OVERRIDE,
   * whose values are `high_precision` and `dequantized`, else `none`.
   */
  readonly backwardOverride?: BackwardOverride | undefined;
}

/** Options of every standard recipe: its element formats, and how its products accumulate. */
export interface RecipeOptions extends CommonRecipeOptions {
  /** The element formats of the forward and backward pass. Default: as in the recipe's row of the table. */
  readonly format?: Format | undefined;
  /**
   * Whether attention quantizes its tensors too (numerics.md §10.9). TransformerEngine's
   * `fp8_dpa`. Not under `Float8BlockScaling` and `NVFP4BlockScaling`. Default false: attention computes in the dtype of q.
   */
  readonly fp8Dpa?: boolean | undefined;
  /**
   * Whether `MultiheadAttention` also passes quantized tensors from and to its projections, where the recipe allows it. It
   * implies `fp8Dpa`. TransformerEngine's `fp8_mha`. Default false.
   */
  readonly fp8Mha?: boolean | undefined;
}

const accumulation = nested(optionsOf<MMParams>({ useSplitAccumulator: needed(boolean) }));

/** The checks of the options that all recipes have. */
export const COMMON_OPTIONS: OptionTable<CommonRecipeOptions> = {
  fprop: accumulation,
  dgrad: accumulation,
  wgrad: accumulation,
  backwardOverride: oneOf(BACKWARD_OVERRIDES),
};

/** The checks of the options that all standard recipes have. */
export const RECIPE_OPTIONS: OptionTable<RecipeOptions> = {
  ...COMMON_OPTIONS,
  format: anything,
  fp8Dpa: boolean,
  fp8Mha: boolean,
};

const checkCommon = optionsOf(COMMON_OPTIONS);

/** TransformerEngine's variable for `backwardOverride`, and its values. */
const OVERRIDE_VARIABLE = "NVTE_BACKWARD_OVERRIDE";
const OVERRIDE_VALUES = { high_precision: "highPrecision", dequantized: "dequantized" } as const;

/** Returns the override that the environment selects. Throws `ArgumentError` for a value that TransformerEngine does not have. */
function overrideOfEnvironment(caller: string): BackwardOverride {
  const value = environmentText(OVERRIDE_VARIABLE);
  if (value === undefined) return "none";
  oneOf(Object.keys(OVERRIDE_VALUES))(caller, OVERRIDE_VARIABLE, value);
  return OVERRIDE_VALUES[value as keyof typeof OVERRIDE_VALUES];
}

/** The base class of all recipes. */
export abstract class Recipe {
  static {
    guardReceivers(this);
  }

  /** How the forward product accumulates. */
  readonly fprop: MMParams;
  /** How the product that computes the gradient of the input accumulates. */
  readonly dgrad: MMParams;
  /** How the product that computes the gradient of the weight accumulates. */
  readonly wgrad: MMParams;
  /** In which precision linear layers compute gradients. */
  readonly backwardOverride: BackwardOverride;
  #key: string | undefined;

  /** @internal Whether `x` is a recipe, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #key in x && inherits(this, x);
  }

  protected constructor(
    /** The key of the recipe's row in `RECIPES`, or `custom`. */
    readonly kind: RecipeKind | "custom",
    split: RecipeRow["useSplitAccumulator"],
    options: CommonRecipeOptions,
  ) {
    const ownOptions = checkCommon(new.target.name, fieldsOf(new.target.name, options, COMMON_OPTIONS));
    this.fprop = ownOptions.fprop ?? { useSplitAccumulator: split.fprop };
    this.dgrad = ownOptions.dgrad ?? { useSplitAccumulator: split.dgrad };
    this.wgrad = ownOptions.wgrad ?? { useSplitAccumulator: split.wgrad };
    this.backwardOverride = ownOptions.backwardOverride ?? overrideOfEnvironment(new.target.name);
  }

  /** The recipe's row of the table, or undefined for custom quantizers. */
  get row(): RecipeRow | undefined {
    return undefined;
  }

  /** How attention quantizes. Undefined if it computes in high precision. */
  get attention(): AttentionTraits | undefined {
    return undefined;
  }

  /** A string that is equal for equivalent recipes: recipes of the same class with equal fields. */
  get key(): string {
    this.#key ??= JSON.stringify([this.constructor, this], (_, value) =>
      typeof value === "function" ? identityOf(value) : value,
    );
    return this.#key;
  }
}

/** Returns the argument if it is a recipe. Throws `ArgumentError` if it is not, for example the name or class of a recipe. */
export function requireRecipe(op: string, recipe: unknown): Recipe {
  if (recipe instanceof Recipe) return recipe;
  throw new ArgumentError(
    `${op}: recipe is ${describe(recipe)}; give a recipe, such as new DelayedScaling()`,
  );
}

/** Checks an option that is a recipe. */
export const recipeOption: Domain = (caller, _name, recipe) => requireRecipe(caller, recipe);

/** The base class of recipes that are defined by a row of the table and options. */
export abstract class StandardRecipe extends Recipe {
  static {
    guardReceivers(this);
  }

  /** The key of the recipe's row in `RECIPES`. */
  declare readonly kind: RecipeKind;
  /** The element formats of the forward and backward pass. */
  readonly format: Format;
  /** Whether attention quantizes its tensors. */
  readonly fp8Dpa: boolean;
  /** Whether `MultiheadAttention` passes quantized tensors from and to its projections. */
  readonly fp8Mha: boolean;

  protected constructor(kind: RecipeKind, options: RecipeOptions) {
    const row = RECIPES[kind];
    super(kind, row.useSplitAccumulator, options);
    this.format = options.format === undefined ? row.format : options.format;
    this.fp8Mha = options.fp8Mha ?? false;
    this.fp8Dpa = this.fp8Mha || (options.fp8Dpa ?? false);
    if (this.fp8Dpa && !row.attention)
      throw new ArgumentError(
        `${new.target.name}: fp8Dpa and fp8Mha do not go with this recipe, whose attention stays in high precision; leave them out, and give layers of attention another recipe by setLayerRecipes`,
      );
    if (row.formats.includes(this.format)) return;
    const why = UNSUPPORTED_FORMATS.get(this.format);
    throw new ArgumentError(
      `${new.target.name}: format ${describe(this.format)} is not one of ${row.formats.join(", ")}${why === undefined ? "" : `; ${why}`}`,
    );
  }

  /** The recipe's row of the table. The options override its defaults. */
  override get row(): RecipeRow {
    return RECIPES[this.kind];
  }

  /** How attention quantizes, by the recipe's row. Undefined without `fp8Dpa`. */
  override get attention(): AttentionTraits | undefined {
    const traits = this.fp8Dpa ? this.row.attention : undefined;
    return traits && { ...traits, input: traits.input && this.fp8Mha };
  }

  /**
   * Returns the element format for the tensor of that role.
   *
   * @throws `ArgumentError` for an unknown role.
   */
  elementFormat(role: Role): ScalarFormat {
    return FORMATS[this.format][passOf(role)];
  }

  /**
   * Returns the quantizer settings for the tensor of that role.
   *
   * @throws `ArgumentError` for an unknown role.
   */
  qparams(role: Role): QParams {
    const { row } = this;
    passOf(role);
    return {
      pow2Scales: false,
      amaxEpsilon: 0,
      rht: row.rht.includes(role),
      stochastic: row.stochastic.includes(role),
      tile: role === "weight" ? row.weightTile : row.tile,
      fourOverSix: "none",
      e4m3Max: 448,
      rowScaled: false,
    };
  }
}

const identities = new WeakMap<object, number>();
let identified = 0;

/** Returns a number that is unique to that object. */
function identityOf(value: object): string {
  const identity = identities.get(value) ?? ++identified;
  identities.set(value, identity);
  return `#${identity}`;
}
