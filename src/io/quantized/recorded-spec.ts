/** How files name the fields of a spec. */
import type { QuantizeSpec } from "../../tensor/quantized.js";

/** Fields that files name otherwise than the API does; all others have one name in both. */
const RECORDED: Partial<Record<keyof QuantizeSpec, string>> = { amaxEpsilon: "epsilon" };

/** The key of a field of a spec in a checkpoint, or in the metadata of a file. */
export function recordedField(field: keyof QuantizeSpec): string {
  return RECORDED[field] ?? field;
}

/** A spec under the keys of files, in the order of its fields. */
export function recordedSpec(spec: QuantizeSpec): Readonly<Record<string, unknown>> {
  const fields = Object.keys(spec) as readonly (keyof QuantizeSpec)[];
  return Object.fromEntries(fields.map((field) => [recordedField(field), spec[field]]));
}
