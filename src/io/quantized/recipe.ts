/** The metadata of quantized tensors in files, which say how codes and scales are to be interpreted. */
import { blockFormat, type QuantizerOption } from "../../formats/block.js";
import { RHT_SIGNS } from "../../ops/quantize/hadamard.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedTensor,
  type QuantizeSpec,
  type ScaleLayout,
} from "../../tensor/quantized.js";
import type { Shape, WideDType } from "../../tensor/shape.js";
import { makeSpec } from "../../tensor/spec.js";
import { parseJsonObject } from "../json/json-object.js";
import { isOmitted, recordedField } from "./recorded-spec.js";

/** The interpretation of a quantized tensor in a file. */
export interface Recipe {
  readonly spec: QuantizeSpec;
  /** The shape and type before quantization. */
  readonly shape: Shape;
  readonly dtype: WideDType;
  readonly scales: ScaleLayout;
  readonly usage: readonly Direction[];
}

/** The fields of a spec that metadata may omit. */
const SPEC_FIELDS = [
  "tile",
  "pow2Scales",
  "amaxEpsilon",
  "rht",
  "rhtSigns",
  "stochastic",
  "compact",
] as const;

/**
 * Whether metadata leave out an option because it has its default value and was added to the quantizer later, so that older files
 * do not have it. Quantizers with a per-tensor amax have had stochastic rounding from the beginning.
 */
function isLater({ quantizer, stochastic }: QuantizeSpec, option: QuantizerOption): boolean {
  return option === "stochastic" && !stochastic && !blockFormat(quantizer).tensorAmax;
}

/** The values of the option `fourOverSix` as metadata spell them. */
const FOUR_OVER_SIX = { none: false, mae: true, mse: "mse" } as const;

/** The prefix of the library's metadata keys. */
export const KEY_PREFIX = "lockstep.";

/** The metadata key of a quantized tensor. */
export function recipeKey(name: string): string {
  return KEY_PREFIX + name;
}

/** The name of the quantized tensor that a metadata key describes; undefined for other keys. */
export function recipeSubject(key: string): string | undefined {
  return key.startsWith(KEY_PREFIX) ? key.slice(KEY_PREFIX.length) : undefined;
}

/** The key of a checkpoint's record. */
export const RECORD_KEY = `${KEY_PREFIX}checkpoint`;

/** Whether an entry of the metadata is a checkpoint's record, and not the recipe of a quantized tensor named "checkpoint". */
export function isCheckpoint(key: string, text: string): boolean {
  const value = key === RECORD_KEY ? parseJsonObject(text) : undefined;
  return value !== undefined && !Object.hasOwn(value, "quantizer");
}

/** The name of the writing program, for people; readers ignore it. */
export interface Provenance {
  readonly backend: string;
  readonly version: string;
}

/**
 * The metadata value of a quantized tensor. Fields that do not apply, or that have the reader's default, are absent.
 */
export function formatRecipe({ spec, shape, dtype, scales, usage }: Recipe, by?: Provenance): string {
  const { quantizer, format } = spec;
  const special = blockFormat(quantizer).options.filter(
    (option) => !isOmitted(spec, option) && !isLater(spec, option),
  );
  const granted = { ...makeSpec(quantizer, { format }), rhtSigns: spec.rht ? RHT_SIGNS : 0 };
  const written = (field: keyof QuantizeSpec): readonly [string, unknown] =>
    field === "fourOverSix" ? [field, FOUR_OVER_SIX[spec.fourOverSix]] : [recordedField(field), spec[field]];
  const others = SPEC_FIELDS.filter(
    (each) => !special.some((one) => one === each) && spec[each] !== granted[each],
  );
  return JSON.stringify({
    quantizer,
    format,
    ...Object.fromEntries([...special, ...others].map(written)),
    shape,
    dtype,
    scales,
    usage,
    ...by,
  });
}

/** The recipe of a quantized tensor, for the copies that it has. */
export function recipeOf({ spec, shape, dtype, scaleLayout, usage }: QuantizedTensor): Recipe {
  return { spec, shape, dtype, scales: scaleLayout, usage: DIRECTIONS.filter((each) => usage[each]) };
}
