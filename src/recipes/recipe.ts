/** What a recipe is: a row of the table under options, or quantizers of the caller's own. */
import { ArgumentError } from "../errors.js";
import type { ScalarFormat } from "../formats/scalar.js";
import {
  FORMATS,
  type Format,
  type MMParams,
  type QParams,
  RECIPES,
  type RecipeKind,
  type RecipeRow,
  type Role,
} from "./table.js";

export interface RecipeOptions {
  readonly format?: Format;
  readonly fprop?: MMParams;
  readonly dgrad?: MMParams;
  readonly wgrad?: MMParams;
}

/** What all recipes have. Two recipes of equal `key` are the same recipe. */
export abstract class Recipe {
  readonly fprop: MMParams;
  readonly dgrad: MMParams;
  readonly wgrad: MMParams;

  protected constructor(
    readonly kind: RecipeKind | "custom",
    split: RecipeRow["splitAccumulator"],
    options: RecipeOptions,
  ) {
    this.fprop = options.fprop ?? { useSplitAccumulator: split.fprop };
    this.dgrad = options.dgrad ?? { useSplitAccumulator: split.dgrad };
    this.wgrad = options.wgrad ?? { useSplitAccumulator: split.wgrad };
    for (const [name, params] of Object.entries({
      fprop: this.fprop,
      dgrad: this.dgrad,
      wgrad: this.wgrad,
    })) {
      if (typeof params?.useSplitAccumulator !== "boolean")
        throw new ArgumentError(`${new.target.name}: ${name} is no { useSplitAccumulator: true or false }`);
    }
  }

  /** A text that is equal for recipes that do the same. */
  abstract get key(): string;
}

/** Throws `ArgumentError` for what is no recipe: its name, or its class. */
export function requireRecipe(op: string, recipe: Recipe): void {
  if (recipe instanceof Recipe) return;
  const given =
    typeof recipe === "function" ? `the class ${(recipe as { name: string }).name}` : String(recipe);
  throw new ArgumentError(`${op}: recipe is ${given}; give a recipe, such as new DelayedScaling()`);
}

/** A recipe that is a row of the table under options. */
export abstract class StandardRecipe extends Recipe {
  declare readonly kind: RecipeKind;
  readonly format: Format;

  protected constructor(kind: RecipeKind, options: RecipeOptions) {
    const row = RECIPES[kind];
    super(kind, row.splitAccumulator, options);
    this.format = options.format ?? row.format;
    if (row.formats.includes(this.format)) return;
    const why = this.format === "E5M2" ? "; pure E5M2 training loses too many digits to be supported" : "";
    throw new ArgumentError(
      `${new.target.name}: format ${this.format} is not one of ${row.formats.join(", ")}${why}`,
    );
  }

  get row(): RecipeRow {
    return RECIPES[this.kind];
  }

  /** The element format of that tensor. */
  elementFormat(role: Role): ScalarFormat {
    const { forward, backward } = FORMATS[this.format];
    return role === "gradOutput" || role === "gradInput" ? backward : forward;
  }

  /** How that tensor is quantized. */
  qparams(role: Role): QParams {
    const { row } = this;
    return {
      power2Scale: false,
      amaxEpsilon: 0,
      randomHadamardTransform: row.rht.includes(role),
      stochasticRounding: row.stochastic.includes(role),
      tile: role === "weight" ? row.weightTile : row.tile,
      fourOverSix: "none",
    };
  }

  override get key(): string {
    return JSON.stringify(this, (_, value) => (typeof value === "function" ? identityOf(value) : value));
  }
}

const identities = new WeakMap<object, number>();
let identified = 0;

/** A number that is that object's alone, for keys. */
export function identityOf(value: object): string {
  const known = identities.get(value) ?? ++identified;
  identities.set(value, known);
  return `#${known}`;
}

/** Throws `ArgumentError` unless it is a lower bound of amaxes. */
export function requireEpsilon(recipe: string, amaxEpsilon: number): void {
  if (!(amaxEpsilon >= 0 && amaxEpsilon < Number.POSITIVE_INFINITY))
    throw new ArgumentError(`${recipe}: amaxEpsilon is ${amaxEpsilon}; it must be finite and at least 0`);
}
