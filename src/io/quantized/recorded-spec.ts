/** The names of a spec's fields in files. */
import type { QuantizeSpec } from "../../tensor/quantized.js";

/** The fields whose names in files differ from those in the API. */
const RECORDED: Partial<Record<keyof QuantizeSpec, string>> = { amaxEpsilon: "epsilon" };

/** The key of a spec's field in a checkpoint or in the metadata of a file. */
export function recordedField(field: keyof QuantizeSpec): string {
  return RECORDED[field] ?? field;
}

/** A spec with the keys of files, in the order of its fields. */
export function recordedSpec(spec: QuantizeSpec): Readonly<Record<string, unknown>> {
  const fields = Object.keys(spec) as readonly (keyof QuantizeSpec)[];
  return Object.fromEntries(fields.map((field) => [recordedField(field), spec[field]]));
}
