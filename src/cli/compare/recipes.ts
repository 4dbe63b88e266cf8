/** Compares the metadata of quantized tensors in two files: the fields that determine values. */
import { tensorScaleRole } from "../../formats/scale-rules.js";
import { allMembers } from "../../io/quantized/quantized-file.js";
import { isCheckpoint, type Recipe, recipeSubject } from "../../io/quantized/recipe.js";
import { parseRecipe } from "../../io/quantized/recipe-parser.js";
import type { TensorSource } from "../../io/source.js";

/** A metadata field of a quantized tensor whose value differs between two files. */
export interface RecipeDifference {
  /** The name of the quantized tensor. */
  readonly name: string;
  /** The field, as `lockstep inspect` names it. */
  readonly field: string;
  readonly a: unknown;
  readonly b: unknown;
}

/** The fields that determine how codes and scales are read. They do not include fields about rounding. */
function meaningOf({ spec, shape, dtype, scales, usage }: Recipe): Readonly<Record<string, unknown>> {
  const { quantizer, format, tile, compact, rowScaled, e4m3Max } = spec;
  const columnwise = usage.includes("columnwise");
  return {
    quantizer,
    format,
    tile,
    shape,
    dtype,
    scales,
    ...{ compact, rowScaled, e4m3Max },
    "role of the amax": tensorScaleRole(spec.scaleRule),
    ...(columnwise ? { rht: spec.rht, rhtSigns: spec.rhtSigns } : {}),
  };
}

/** Returns, for each quantized tensor whose members begin with `prefix`, the first field that differs. */
export function recipeDifferences(a: TensorSource, b: TensorSource, prefix: string): RecipeDifference[] {
  return Object.entries(a.metadata).flatMap(([key, text]) => {
    const name = recipeSubject(key);
    const otherMetadata = Object.hasOwn(b.metadata, key) ? b.metadata[key] : undefined;
    if (
      name === undefined ||
      otherMetadata === undefined ||
      otherMetadata === text ||
      isCheckpoint(key, text)
    )
      return [];
    const [ofA, ofB] = [parseRecipe(a.path, name, text), parseRecipe(b.path, name, otherMetadata)];
    if (!allMembers(name, ofA).some(({ plan }) => plan.name.startsWith(prefix))) return [];
    const [meaningOfA, meaningOfB] = [meaningOf(ofA), meaningOf(ofB)];
    const field = Object.keys({ ...meaningOfA, ...meaningOfB }).find(
      (each) => JSON.stringify(meaningOfA[each]) !== JSON.stringify(meaningOfB[each]),
    );
    return field === undefined ? [] : [{ name, field, a: meaningOfA[field], b: meaningOfB[field] }];
  });
}

/** Describes a difference in one line. */
export function recipeLine({ name, field, a, b }: RecipeDifference): string {
  return `${name}: the metadata say ${field} ${text(a)} against ${text(b)}: the same codes and scales are read as other values`;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value ?? "none");
}
