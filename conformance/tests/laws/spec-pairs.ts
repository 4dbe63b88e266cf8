/** Pairs of specs that differ in one field, for laws about consumers of two quantized tensors. */
import type { Backend } from "../../../src/backends/backend.js";
import { tensor } from "../../../src/ops/create.js";
import type { Quantizer } from "../../../src/quantizers/quantizer.js";
import type { QuantizeSpec } from "../../../src/tensor/quantized.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { words } from "../../arbitraries/random.js";
import { QUANTIZERS, specsOf } from "../../arbitraries/specs.js";
import { SpecQuantizer } from "../../operations/quantize/quantized.js";
import { SEED } from "../harness/draws.js";

/** The name of a field of a spec. */
export type Field = keyof QuantizeSpec;
/** Two specs. */
export type Pair = readonly [QuantizeSpec, QuantizeSpec];

/** The fields of a spec. The compiler reports a missing field. */
const FIELDS: Readonly<Record<Field, true>> = {
  quantizer: true,
  format: true,
  tile: true,
  scaleRule: true,
  elementScaling: true,
  pow2Scales: true,
  amaxEpsilon: true,
  amaxLimit: true,
  rht: true,
  rhtSigns: true,
  stochastic: true,
  fourOverSix: true,
  e4m3Max: true,
  compact: true,
  rowScaled: true,
};
/** The names of all fields. */
export const FIELD_NAMES = Object.keys(FIELDS) as readonly Field[];

/** All specs except those with values so small that products underflow. */
const SPECS = QUANTIZERS.flatMap((name) => specsOf(name)).filter(
  ({ amaxLimit }) => amaxLimit === 0 || amaxLimit > 2 ** -10,
);
const DEFAULTS = QUANTIZERS.map((name) => makeSpec(name, {}));

/**
 * Groups of specs that agree in all fields but `field`. For `quantizer` they are default specs, because quantizers also differ in
 * other fields.
 */
function groupsOf(field: Field): readonly (readonly QuantizeSpec[])[] {
  if (field === "quantizer") return [DEFAULTS];
  const groups = new Map<string, QuantizeSpec[]>();
  for (const spec of SPECS) {
    const key = JSON.stringify({ ...spec, [field]: undefined });
    const group = groups.get(key);
    if (group) group.push(spec);
    else groups.set(key, [spec]);
  }
  return [...groups.values()];
}

/**
 * Ordered pairs of specs that differ only in `field`: one pair for each quantizer and each two values of the field. SEED chooses
 * the values of the other fields.
 */
function pairsOf(field: Field): readonly Pair[] {
  const kinds = new Map<string, Pair[]>();
  for (const group of groupsOf(field))
    for (const spec of group)
      for (const otherSpec of group) {
        if (otherSpec === spec) continue;
        const key = `${spec.quantizer} ${spec[field]} ${otherSpec[field]}`;
        const pairs = kinds.get(key);
        if (pairs) pairs.push([spec, otherSpec]);
        else kinds.set(key, [[spec, otherSpec]]);
      }
  const draws = words(SEED, kinds.size);
  return [...kinds.values()].map((pairs, i) => pairs[(draws[i] as number) % pairs.length] as Pair);
}

/** If a field has at most ALL cases, all are tried, otherwise SOME of them. */
const [ALL, SOME] = [24, 12];

/** Each pair with each use, or a sample of these if there are many, selected by SEED. */
export function casesOf<T>(field: Field, uses: readonly T[]): readonly (readonly [Pair, T])[] {
  const cases = pairsOf(field).flatMap((pair) => uses.map((use) => [pair, use] as const));
  if (cases.length <= ALL) return cases;
  const draws = words(SEED + 1, SOME);
  return Array.from(
    { length: SOME },
    (_, i) => cases[(draws[i] as number) % cases.length] as (typeof cases)[0],
  );
}

/** A quantizer of a spec, with a scale and random bits if it needs them. */
export function quantizerOf(
  backend: Backend,
  spec: QuantizeSpec,
  usage = { rowwise: true, columnwise: true },
): Quantizer {
  const scale = spec.quantizer === "fp8-delayed" ? tensor(backend, [64]) : undefined;
  const random = { seed: 7n, offset: 0n };
  return new SpecQuantizer(spec, { ...usage, scaleLayout: "logical" }, { scale, random });
}
