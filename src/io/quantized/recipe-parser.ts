/** Parses recipes in a file's metadata, which may be malicious. */
import { ArgumentError, FileError, LockstepError } from "../../errors.js";
import { BLOCK_FORMAT_NAMES, TILES, type Tile } from "../../formats/block.js";
import { resolveFormat } from "../../formats/derive.js";
import { ELEMENT_SCALING_NAMES, type ElementScalingName } from "../../formats/element-scalings.js";
import { SCALE_RULE_NAMES, type ScaleRuleName } from "../../formats/scale-rules.js";
import { RHT_SIGNS } from "../../ops/quantize/hadamard.js";
import { requireQuantizable } from "../../tensor/geometry.js";
import { DIRECTIONS, type Direction, type FourOverSix } from "../../tensor/quantized.js";
import { asMatrix, type Shape, WIDE_DTYPES, type WideDType } from "../../tensor/shape.js";
import { makeSpec, SCALE_LAYOUTS } from "../../tensor/spec.js";
import { JsonError, parseJson } from "../json/json-read.js";
import { shownJson } from "../json/json-shown.js";
import { type Recipe, recipeKey } from "./recipe.js";
import { recordedField } from "./recorded-spec.js";

/** Parses the result of `formatRecipe`. Throws `FileError` with the file, the tensor and the field. */
export function parseRecipe(path: string, name: string, text: string): Recipe {
  const location = `${path}: tensor "${name}": metadata ${recipeKey(name)}`;
  let json: Fields;
  try {
    json = parseJson(text) as Fields;
  } catch (cause) {
    if (!(cause instanceof JsonError)) throw cause;
    throw new FileError(`${location} ${cause.message}`, { cause });
  }
  try {
    return recipeOf(json);
  } catch (error) {
    if (!(error instanceof LockstepError)) throw error;
    throw new FileError(`${location}: ${error.message}`, { cause: error });
  }
}

type Fields = Readonly<Record<string, unknown>> | null;

/** The fields of a JSON object; each is checked when it is read. */
class Reader {
  constructor(private readonly fields: Fields) {}

  /** The value of a field, which `isRight` must accept; undefined if the field is absent. */
  optional<T>(key: string, isRight: (value: unknown) => value is T, requirement: string): T | undefined {
    const value = this.fields?.[key];
    if (value === undefined || isRight(value)) return value;
    throw new ArgumentError(`${key} is ${shownJson(value)}; ${requirement} is needed`);
  }

  required<T>(key: string, isRight: (value: unknown) => value is T, requirement: string): T {
    const value = this.optional(key, isRight, requirement);
    if (value !== undefined) return value;
    throw new ArgumentError(`${key} is absent; ${requirement} is needed`);
  }

  /** Returns the result of `parse` for a field that must be a string. */
  name<T>(key: string, parse: (text: string) => T): T {
    const text = this.required(key, isString, "a name");
    try {
      return parse(text);
    } catch (error) {
      throw error instanceof ArgumentError ? new ArgumentError(`${key}: ${error.message}`) : error;
    }
  }
}

function recipeOf(fields: Fields): Recipe {
  const read = new Reader(fields);
  const rht = read.optional("rht", isBoolean, "a boolean");
  const fourOverSix = read.optional("fourOverSix", isFourOverSix, "a boolean, mae or mse");
  const spec = makeSpec(read.name("quantizer", oneOf(BLOCK_FORMAT_NAMES)), {
    format: read.name("format", resolveFormat),
    tile: read.optional("tile", isTile, TILES.join(", ")),
    scaleRule: read.optional("scaleRule", isScaleRule, SCALE_RULE_NAMES.join(", ")),
    elementScaling: read.optional("elementScaling", isElementScaling, ELEMENT_SCALING_NAMES.join(", ")),
    pow2Scales: read.optional("pow2Scales", isBoolean, "a boolean"),
    amaxEpsilon: read.optional(recordedField("amaxEpsilon"), isNumber, "a number"),
    amaxLimit: read.optional("amaxLimit", isNumber, "a number"),
    rht,
    rhtSigns: read.optional("rhtSigns", isNumber, "a number") ?? (rht ? RHT_SIGNS : 0),
    compact: read.optional("compact", isBoolean, "a boolean"),
    stochastic: read.optional("stochastic", isBoolean, "a boolean"),
    fourOverSix: isBoolean(fourOverSix) ? (fourOverSix ? "mae" : "none") : fourOverSix,
    e4m3Max: read.optional("e4m3Max", isE4m3Max, "448 or 256"),
    rowScaled: read.optional("rowScaled", isBoolean, "a boolean"),
  });
  const shape = read.required("shape", isShape, "a list of sizes");
  requireQuantizable("shape", spec, asMatrix(shape)[1]);
  return {
    spec,
    shape,
    dtype: read.required("dtype", isWideName, "f32, bf16 or f16"),
    scales: read.name("scales", oneOf(SCALE_LAYOUTS)),
    usage: read.required("usage", isUsage, "a list of rowwise and columnwise"),
  };
}

/** Returns a parser that accepts only these names. */
function oneOf<const T extends string>(names: readonly T[]): (text: string) => T {
  return (text) => {
    const match = names.find((name) => name === text);
    if (match !== undefined) return match;
    throw new ArgumentError(`${shownJson(text)} is not one of ${names.join(", ")}`);
  };
}

const isString = (value: unknown): value is string => typeof value === "string";
const isBoolean = (value: unknown): value is boolean => typeof value === "boolean";
const isNumber = (value: unknown): value is number => typeof value === "number";
const isTile = (value: unknown): value is Tile => TILES.some((tile) => tile === value);
const isScaleRule = (value: unknown): value is ScaleRuleName =>
  SCALE_RULE_NAMES.some((rule) => rule === value);
const isElementScaling = (value: unknown): value is ElementScalingName =>
  ELEMENT_SCALING_NAMES.some((name) => name === value);
const isE4m3Max = (value: unknown): value is 448 | 256 => value === 448 || value === 256;
const isFourOverSix = (value: unknown): value is boolean | FourOverSix =>
  isBoolean(value) || value === "none" || value === "mae" || value === "mse";
const isShape = (value: unknown): value is Shape =>
  Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && size >= 0);
const isUsage = (value: unknown): value is readonly Direction[] =>
  Array.isArray(value) && value.length > 0 && value.every((direction) => DIRECTIONS.includes(direction));
const isWideName = (value: unknown): value is WideDType => WIDE_DTYPES.some((dtype) => dtype === value);
