/** What a recipe is: a row of the table under options, or quantizers of the caller's own. */
import { ArgumentError } from "../errors.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { anything, boolean, describe, needed, nested, type OptionTable, optionsOf } from "../options.js";
import {
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

/** How each product accumulates. Default: as the recipe's row says. */
export type ProductOptions = { readonly [P in Product]?: MMParams };

/** What every standard recipe takes: its element formats, and how products accumulate. */
export interface RecipeOptions extends ProductOptions {
  /** Default: as the recipe's row says. */
  readonly format?: Format | undefined;
}

const accumulation = nested(optionsOf<MMParams>({ useSplitAccumulator: needed(boolean) }));

/** The rows that all recipes' options have. */
export const PRODUCT_OPTIONS: OptionTable<ProductOptions> = {
  fprop: accumulation,
  dgrad: accumulation,
  wgrad: accumulation,
};

/** The rows that the options of a standard recipe have. */
export const RECIPE_OPTIONS: OptionTable<RecipeOptions> = { ...PRODUCT_OPTIONS, format: anything };

const checkProducts = optionsOf(PRODUCT_OPTIONS);

/** What all recipes have. */
export abstract class Recipe {
  /** How the forward product accumulates. */
  readonly fprop: MMParams;
  /** How the product for the gradient of the input accumulates. */
  readonly dgrad: MMParams;
  /** How the product for the gradient of the weight accumulates. */
  readonly wgrad: MMParams;
  #key: string | undefined;

  protected constructor(
    /** Its row in `RECIPES`, or `custom` for quantizers of one's own. */
    readonly kind: RecipeKind | "custom",
    split: RecipeRow["useSplitAccumulator"],
    options: ProductOptions,
  ) {
    const { fprop, dgrad, wgrad } = options;
    checkProducts(new.target.name, { fprop, dgrad, wgrad } as ProductOptions);
    this.fprop = options.fprop ?? { useSplitAccumulator: split.fprop };
    this.dgrad = options.dgrad ?? { useSplitAccumulator: split.dgrad };
    this.wgrad = options.wgrad ?? { useSplitAccumulator: split.wgrad };
  }

  /** Its row of the table; undefined where the quantizers are the caller's. */
  get row(): RecipeRow | undefined {
    return undefined;
  }

  /** A text that is equal for recipes that do the same: those of one class with equal fields. */
  get key(): string {
    this.#key ??= JSON.stringify([this.constructor, this], (_, value) =>
      typeof value === "function" ? identityOf(value) : value,
    );
    return this.#key;
  }
}

/** Throws `ArgumentError` for what is no recipe: its name, or its class. */
export function requireRecipe(op: string, recipe: unknown): asserts recipe is Recipe {
  if (recipe instanceof Recipe) return;
  throw new ArgumentError(
    `${op}: recipe is ${describe(recipe)}; give a recipe, such as new DelayedScaling()`,
  );
}

/** A recipe that is a row of the table under options. */
export abstract class StandardRecipe extends Recipe {
  /** Its row in `RECIPES`. */
  declare readonly kind: RecipeKind;
  /** The element formats of both passes. */
  readonly format: Format;

  protected constructor(kind: RecipeKind, options: RecipeOptions) {
    const row = RECIPES[kind];
    super(kind, row.useSplitAccumulator, options);
    this.format = options.format === undefined ? row.format : options.format;
    if (row.formats.includes(this.format)) return;
    const why = UNSUPPORTED_FORMATS.get(this.format);
    throw new ArgumentError(
      `${new.target.name}: format ${describe(this.format)} is not one of ${row.formats.join(", ")}${why === undefined ? "" : `; ${why}`}`,
    );
  }

  /** What the recipe is before options. */
  override get row(): RecipeRow {
    return RECIPES[this.kind];
  }

  /**
   * The element format of that tensor.
   *
   * @throws `ArgumentError` for what is no role.
   */
  elementFormat(role: Role): ScalarFormat {
    return FORMATS[this.format][passOf(role)];
  }

  /**
   * How that tensor is quantized.
   *
   * @throws `ArgumentError` for what is no role.
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
    };
  }
}

const identities = new WeakMap<object, number>();
let identified = 0;

/** A number that is that object's alone. */
function identityOf(value: object): string {
  const known = identities.get(value) ?? ++identified;
  identities.set(value, known);
  return `#${known}`;
}
