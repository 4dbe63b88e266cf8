/** The names of a spec's fields in files. */
import type { QuantizeSpec } from "../../tensor/quantized.js";
import { makeSpec } from "../../tensor/spec.js";

/** The fields whose names in files differ from those in the API. */
const RECORDED: Partial<Record<keyof QuantizeSpec, string>> = { amaxEpsilon: "epsilon" };

/** The key of a spec's field in a checkpoint or in the metadata of a file. */
export function recordedField(field: keyof QuantizeSpec): string {
  return RECORDED[field] ?? field;
}

/**
 * The fields that were added to specs later. Files contain them only if they differ from the default, as older files lack them.
 */
const ADDED: readonly (keyof QuantizeSpec)[] = ["scaleRule", "elementScaling", "amaxLimit", "rowScaled"];

/** Whether files leave out that field of a spec, because it was added to specs later and has its default. */
export function isOmitted(spec: QuantizeSpec, field: keyof QuantizeSpec): boolean {
  return ADDED.includes(field) && spec[field] === makeSpec(spec.quantizer, {})[field];
}

/** A spec with the keys of files, in the order of its fields. */
export function recordedSpec(spec: QuantizeSpec): Readonly<Record<string, unknown>> {
  const all = Object.keys(spec) as readonly (keyof QuantizeSpec)[];
  const fields = all.filter((field) => !isOmitted(spec, field));
  return Object.fromEntries(fields.map((field) => [recordedField(field), spec[field]]));
}
