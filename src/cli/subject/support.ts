/** The inputs of an operation that a subject supports, by its hello message: lists of values, a recipe, or a dialect. */
import type { Supported } from "lockstep/conformance";
import { formOf, quantizerOf } from "../../dialects/quantizer-of.js";
import { DIALECT_NAMES, DIALECTS, type Dialect, type DialectName } from "../../dialects/table.js";
import { ArgumentError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES } from "../../formats/block.js";
import { isObject, type JsonObject } from "../../io/header/header.js";
import { shownJson } from "../../io/json/json-shown.js";
import { parseRecipe } from "../../io/quantized/recipe-parser.js";
import { describe, named } from "../../options.js";

/** The inputs of an operation that a subject supports. */
export interface Support {
  /** The allowed values of input fields. */
  readonly fields: Supported;
  /** The dialect that the subject implements. */
  readonly dialect?: DialectName;
}

/** The fields that exclude NaN and infinities from inputs. */
const WITHOUT = { nan: "x.hasNaN", infinity: "x.hasInfinity" } as const;

/**
 * Parses the inputs that a subject supports. "recipe" is the metadata that `quantize` writes for a tensor; it sets all fields of
 * a spec. "dialect" sets the fields that the dialect fixes, unless there is a recipe. It also excludes NaN and infinities if the
 * package treats them differently from numerics.md. Fields that the subject lists itself take precedence.
 */
export function supportOf(operation: string, supported: unknown): Support {
  if (isObject(supported)) {
    const { recipe, dialect: name, ...fields } = supported;
    const dialect = dialectNamed(name);
    const specs = recipe === undefined ? {} : recipeFields(recipe);
    const ofDialect = dialect === undefined ? {} : dialectFields(dialect, fields, recipe !== undefined);
    const supportFields = { ...ofDialect, ...specs, ...fields };
    if (Object.values(supportFields).every((each) => Array.isArray(each) && each.length > 0))
      return { fields: supportFields as JsonObject & Supported, ...(dialect ? { dialect } : {}) };
  }
  throw new ArgumentError(
    `the subject's operation ${operation} supports ${shownJson(supported)}; give lists of values by field, {"spec.format": ["e4m3"]}, or {}`,
  );
}

function dialectNamed(name: unknown): DialectName | undefined {
  if (name === undefined) return undefined;
  const dialect = DIALECT_NAMES.find((each) => each === name);
  if (dialect) return dialect;
  throw new ArgumentError(
    `the subject's dialect is ${describe(name)}; it must be one of ${DIALECT_NAMES.join(", ")}`,
  );
}

/** The fields of the spec in the metadata of a quantized tensor. Throws `ArgumentError` for anything else. */
function recipeFields(recipe: unknown): Supported {
  if (typeof recipe !== "string")
    throw new ArgumentError(
      `the subject's recipe is ${describe(recipe)}; give the metadata of a tensor that quantize wrote, a string`,
    );
  return valuesOf([parseRecipe("the subject's recipe", "x", recipe).spec]);
}

/**
 * The fields of a dialect's specs for the subject's quantizer, by default the dialect's first quantizer. They are restricted to
 * inputs for which the package's result is defined.
 */
function dialectFields(dialect: DialectName, fields: JsonObject, hasRecipe: boolean): Supported {
  const { nonFinite = {} }: Dialect = DIALECTS[dialect];
  const inputs = Object.entries(WITHOUT).flatMap(([kind, field]) =>
    nonFinite[kind as keyof typeof WITHOUT] === undefined ? [] : [[field, [false]] as const],
  );
  return { ...(hasRecipe ? {} : specFields(dialect, fields)), ...Object.fromEntries(inputs) };
}

function specFields(dialect: DialectName, fields: JsonObject): Supported {
  const quantizerField = fields["spec.quantizer"];
  const [first] = Array.isArray(quantizerField) ? quantizerField : [undefined];
  const subjectQuantizer = BLOCK_FORMAT_NAMES.find((name) => name === first);
  if (first !== undefined && !subjectQuantizer)
    throw new ArgumentError(`the subject's spec.quantizer is ${named(first)}; there is no such quantizer`);
  const { quantizer, formats = [undefined], tiles = [undefined] } = formOf(dialect, subjectQuantizer);
  return valuesOf(
    formats.flatMap((format) => tiles.map((tile) => quantizerOf({ dialect, quantizer, format, tile }).spec)),
  );
}

/** The values of each field over several specs. */
function valuesOf(specs: readonly object[]): Supported {
  const fields = Object.keys(specs[0] ?? {});
  return Object.fromEntries(
    fields.map((field) => [`spec.${field}`, [...new Set(specs.map((spec) => (spec as JsonObject)[field]))]]),
  );
}

/** Notes on inputs that are not drawn for this subject although other subjects must answer them. */
export function notesOf({ fields, dialect }: Support): readonly string[] {
  const { nonFinite }: Partial<Dialect> = dialect === undefined ? {} : DIALECTS[dialect];
  const omitted = Object.entries(WITHOUT).flatMap(([kind, field]) => {
    if (fields[field]?.includes(true) !== false) return [];
    const reason = nonFinite?.[kind as keyof typeof WITHOUT];
    const valueText = kind === "nan" ? "a NaN" : "an infinity";
    return [
      reason === undefined
        ? `no input has ${valueText}, as the subject asks`
        : `no input has ${valueText}, which ${dialect} treats in its own way: ${reason}`,
    ];
  });
  return nonFinite ? [...omitted, "codes that are NaN are equal whatever their signs"] : omitted;
}
