/** What a subject supports of an operation, as its hello says it: lists of values, a recipe, or a dialect. */
import type { Supported } from "lockstep/conformance";
import { formOf, quantizerOf } from "../../dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../dialects/table.js";
import { ArgumentError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES } from "../../formats/block.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { shownJson } from "../../io/json/json-shown.js";
import { parseRecipe } from "../../io/quantized/recipe-parser.js";
import { describe, named } from "../../options.js";

/** What a subject supports of an operation. */
export interface Support {
  /** The values that fields of an input may have. */
  readonly fields: Supported;
  /** The dialect whose kernel it is. */
  readonly dialect?: DialectName;
}

/** The fields that say that no NaN and no infinity is drawn, by the kind of value. */
const WITHOUT = { nan: "x.hasNaN", infinity: "x.hasInfinity" } as const;

/**
 * What a subject supports of an operation. "recipe" stands for all fields of a spec: it is the metadata that `quantize` wrote
 * for a tensor. "dialect" stands for the fields that the dialect fixes, unless there is a recipe, and for inputs without the NaN
 * and infinities that its package treats in another way than numerics.md. Fields that the subject names itself come first.
 */
export function supportOf(operation: string, supported: unknown): Support {
  if (isObject(supported)) {
    const { recipe, dialect: name, ...fields } = supported;
    const dialect = dialectNamed(name);
    const specs = recipe === undefined ? {} : recipeFields(recipe);
    const ofDialect = dialect === undefined ? {} : dialectFields(dialect, fields, recipe !== undefined);
    const all = { ...ofDialect, ...specs, ...fields };
    if (Object.values(all).every((each) => Array.isArray(each) && each.length > 0))
      return { fields: all as JsonObject & Supported, ...(dialect ? { dialect } : {}) };
  }
  throw new ArgumentError(
    `the subject's operation ${operation} supports ${shownJson(supported)}; give lists of values by field, {"spec.format": ["e4m3"]}, or {}`,
  );
}

function dialectNamed(name: unknown): DialectName | undefined {
  if (name === undefined) return undefined;
  const known = DIALECT_NAMES.find((each) => each === name);
  if (known) return known;
  throw new ArgumentError(
    `the subject's dialect is ${describe(name)}; it must be one of ${DIALECT_NAMES.join(", ")}`,
  );
}

/** The fields of the spec in the metadata of a quantized tensor. Throws `ArgumentError` for other values. */
function recipeFields(recipe: unknown): Supported {
  if (typeof recipe !== "string")
    throw new ArgumentError(
      `the subject's recipe is ${describe(recipe)}; give the metadata of a tensor that quantize wrote, a string`,
    );
  return valuesOf([parseRecipe("the subject's recipe", "x", recipe).spec]);
}

/** The specs of a dialect, by the quantizer that the subject names or its first one, and the inputs that its package decides. */
function dialectFields(dialect: DialectName, fields: JsonObject, hasRecipe: boolean): Supported {
  const { nonFinite = {} }: Dialect = DIALECTS[dialect];
  const inputs = Object.entries(WITHOUT).flatMap(([kind, field]) =>
    nonFinite[kind as keyof typeof WITHOUT] === undefined ? [] : [[field, [false]] as const],
  );
  return { ...(hasRecipe ? {} : specFields(dialect, fields)), ...Object.fromEntries(inputs) };
}

function specFields(dialect: DialectName, fields: JsonObject): Supported {
  const wanted = fields["spec.quantizer"];
  const [first] = Array.isArray(wanted) ? wanted : [undefined];
  const asked = BLOCK_FORMAT_NAMES.find((name) => name === first);
  if (first !== undefined && !asked)
    throw new ArgumentError(`the subject's spec.quantizer is ${named(first)}; there is no such quantizer`);
  const { quantizer, formats = [undefined], tiles = [undefined] } = formOf(dialect, asked);
  return valuesOf(
    formats.flatMap((format) => tiles.map((tile) => quantizerOf({ dialect, quantizer, format, tile }).spec)),
  );
}

/** The values that each field of some specs has. */
function valuesOf(specs: readonly object[]): Supported {
  const fields = Object.keys(specs[0] ?? {});
  return Object.fromEntries(
    fields.map((field) => [`spec.${field}`, [...new Set(specs.map((spec) => (spec as JsonObject)[field]))]]),
  );
}

/** What is not drawn for a subject although other subjects have to answer it, in words. */
export function notesOf({ fields, dialect }: Support): readonly string[] {
  const { nonFinite }: Partial<Dialect> = dialect === undefined ? {} : DIALECTS[dialect];
  const omitted = Object.entries(WITHOUT).flatMap(([kind, field]) => {
    if (fields[field]?.includes(true) !== false) return [];
    const why = nonFinite?.[kind as keyof typeof WITHOUT];
    const what = kind === "nan" ? "a NaN" : "an infinity";
    return [
      why === undefined
        ? `no input has ${what}, as the subject asks`
        : `no input has ${what}, which ${dialect} treats in its own way: ${why}`,
    ];
  });
  return nonFinite ? [...omitted, "codes that are NaN are equal whatever their signs"] : omitted;
}
