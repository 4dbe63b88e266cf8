/** The base classes of recipes: a row of the table with options, or custom quantizers. */
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

/** The option rows of all recipes. */
export const PRODUCT_OPTIONS: OptionTable<ProductOptions> = {
  fprop: accumulation,
  dgrad: accumulation,
  wgrad: accumulation,
};

/** The option rows of standard recipes. */
export const RECIPE_OPTIONS: OptionTable<RecipeOptions> = { ...PRODUCT_OPTIONS, format: anything };

const checkProducts = optionsOf(PRODUCT_OPTIONS);

/** The base of all recipes. */
export abstract class Recipe {
  /** How the forward product accumulates. */
  readonly fprop: MMParams;
  /** How the product for the gradient of the input accumulates. */
  readonly dgrad: MMParams;
  /** How the product for the gradient of the weight accumulates. */
  readonly wgrad: MMParams;
  #key: string | undefined;

  protected constructor(
    /** Its row in `RECIPES`, or `custom`. */
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

  /** Its row of the table; undefined for custom quantizers. */
  get row(): RecipeRow | undefined {
    return undefined;
  }

  /** A string that is equal for equivalent recipes: those of one class with equal fields. */
  get key(): string {
    this.#key ??= JSON.stringify([this.constructor, this], (_, value) =>
      typeof value === "function" ? identityOf(value) : value,
    );
    return this.#key;
  }
}

/** Throws `ArgumentError` for anything but a recipe, such as its name or class. */
export function requireRecipe(op: string, recipe: unknown): asserts recipe is Recipe {
  if (recipe instanceof Recipe) return;
  throw new ArgumentError(
    `${op}: recipe is ${describe(recipe)}; give a recipe, such as new DelayedScaling()`,
  );
}

/** A recipe made of a row of the table and options. */
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

  /** Its row of the table, which options override. */
  override get row(): RecipeRow {
    return RECIPES[this.kind];
  }

  /**
   * The element format of the tensor of that role.
   *
   * @throws `ArgumentError` for anything but a role.
   */
  elementFormat(role: Role): ScalarFormat {
    return FORMATS[this.format][passOf(role)];
  }

  /**
   * How the tensor of that role is quantized.
   *
   * @throws `ArgumentError` for anything but a role.
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

/** A unique number for that object. */
function identityOf(value: object): string {
  const known = identities.get(value) ?? ++identified;
  identities.set(value, known);
  return `#${known}`;
}
