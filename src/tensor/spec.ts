/** Makes and checks a `QuantizeSpec`: each field must have a valid value, and the fields must be a combination that exists. */
import { ArgumentError } from "../errors.js";
import {
  BLOCK_FORMAT_NAMES,
  type BlockFormatName,
  blockFormat,
  hasGemmReadyTile,
  isSquare,
  quantizersWith,
  type Tile,
} from "../formats/block.js";
import { resolveFormat } from "../formats/derive.js";
import { decidesTies } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { SCALE_RULES, type ScaleRuleName, scalingsOf } from "../formats/scale-rules.js";
import {
  anything,
  atLeastZero,
  boolean,
  type Given,
  integer,
  named,
  needed,
  oneOf,
  optionsOf,
} from "../options.js";
import type { Direction, QuantizeSpec } from "./quantized.js";

export const SCALE_LAYOUTS = ["logical", "padded", "swizzled"] as const;
export const FOUR_OVER_SIX = ["none", "mae", "mse"] as const;

const checkFields = optionsOf<QuantizeSpec>({
  quantizer: needed(oneOf(BLOCK_FORMAT_NAMES)),
  format: needed(anything),
  tile: needed(anything),
  scaleRule: needed(anything),
  elementScaling: needed(anything),
  pow2Scales: needed(boolean),
  amaxEpsilon: needed(atLeastZero),
  amaxLimit: needed(atLeastZero),
  rht: needed(boolean),
  rhtSigns: needed(integer(0, 0xffff)),
  stochastic: needed(boolean),
  fourOverSix: needed(oneOf(FOUR_OVER_SIX)),
  e4m3Max: needed(oneOf([448, 256])),
  compact: needed(boolean),
  rowScaled: needed(boolean),
});

/** The specs that `requireSpec` returned. They are frozen and were made here, so they remain valid. */
const known = new WeakSet<QuantizeSpec>();

/**
 * Returns a frozen copy of `spec`, or `spec` itself if it is such a copy. Throws `ArgumentError` unless it is valid.
 */
export function requireSpec(spec: QuantizeSpec): QuantizeSpec {
  if (known.has(spec)) return spec;
  const ownSpec = Object.freeze(checkFields("a quantizer's spec", spec));
  const { quantizer, format, tile, scaleRule, elementScaling } = ownSpec;
  const row = blockFormat(quantizer);
  among(quantizer, "format", format, row.elements);
  among(quantizer, "tile", tile, row.tiles);
  among(quantizer, "scaleRule", scaleRule, row.rules);
  among(`${quantizer} by ${scaleRule}`, "elementScaling", elementScaling, scalingsOf(scaleRule, format));
  requireTogether(ownSpec);
  known.add(ownSpec);
  return ownSpec;
}

function among(quantizer: string, name: string, value: string, allowed: readonly string[]): void {
  if (!allowed.includes(value))
    throw new ArgumentError(`${quantizer}: ${name} ${named(value)} is not one of ${allowed.join(", ")}`);
}

/** Throws `ArgumentError` for a setting that the quantizer does not have, or settings that exclude each other. */
function requireTogether(spec: QuantizeSpec): void {
  const { quantizer, tile, rht, rhtSigns, stochastic, fourOverSix, e4m3Max, compact, pow2Scales } = spec;
  const row = blockFormat(quantizer);
  const refuse = (why: string): never => {
    throw new ArgumentError(`${quantizer}: ${why}`);
  };
  if (compact && !hasGemmReadyTile(spec))
    refuse(`COMPACT is a layout of 1x128 tiles; the tile is ${tile}; leave dataLayout out`);
  if (pow2Scales && row.scale !== "f32") refuse("pow2Scales is for f32 scales; leave it out");
  if (pow2Scales && !row.options.includes("pow2Scales"))
    refuse(`pow2Scales belongs to ${quantizersWith("pow2Scales").join(", ")}; leave it out`);
  if (pow2Scales && SCALE_RULES[spec.scaleRule].powers !== "asked")
    refuse(`pow2Scales is for other rules than ${spec.scaleRule}; leave it out`);
  const { amaxEpsilon, amaxLimit } = spec;
  if (amaxLimit !== 0 && !row.options.includes("amaxLimit"))
    refuse(`amaxLimit belongs to ${quantizersWith("amaxLimit").join(", ")}; leave it out`);
  if (amaxLimit !== 0 && (amaxLimit < amaxEpsilon || Math.fround(amaxLimit) === 0))
    refuse(
      `amaxLimit ${amaxLimit} is below amaxEpsilon ${amaxEpsilon} or zero as f32; give a larger one, or 0 for none`,
    );
  const chosen = {
    rht: rht || rhtSigns !== 0,
    stochastic,
    fourOverSix: fourOverSix !== "none",
    e4m3Max: e4m3Max !== 448,
  };
  for (const option of ["rht", "stochastic", "fourOverSix", "e4m3Max"] as const) {
    if (chosen[option] && !row.options.includes(option))
      refuse(
        `the Hadamard transform, stochastic rounding, 4over6 and e4m3Max belong to ${quantizersWith(option).join(", ")}; leave them out`,
      );
  }
  const ownRule = row.rules[0];
  if (row.tensorAmax && spec.scaleRule !== ownRule && (rht || stochastic || fourOverSix !== "none"))
    refuse(
      `the Hadamard transform, stochastic rounding and 4over6 go with the rule ${ownRule}; the rule is ${spec.scaleRule}`,
    );
  if (stochastic && decidesTies(spec.elementScaling))
    refuse(
      `${spec.elementScaling} says what ties become, and stochastic rounding has none; drop one of the two`,
    );
  if (fourOverSix !== "none" && (rht || stochastic))
    refuse("4over6 goes with neither the Hadamard transform nor stochastic rounding; drop one");
  if (rht && isSquare(tile))
    refuse("the Hadamard transform needs 1x16 tiles; 16x16 tiles share codes between directions");
  if (rhtSigns && !rht) refuse("signs are those of the Hadamard transform; set rht, or leave them out");
  requireRowScaled(spec, refuse);
  if (e4m3Max === 256 && fourOverSix === "none")
    refuse("e4m3Max 256 belongs to 4over6; set fourOverSix, or leave e4m3Max at 448");
}

/** Refuses what does not go with an amax for each line. */
function requireRowScaled(spec: QuantizeSpec, refuse: (why: string) => never): void {
  const { quantizer, tile, scaleRule, rht, stochastic, rowScaled } = spec;
  const row = blockFormat(quantizer);
  if (!rowScaled) return;
  if (!row.options.includes("rowScaled"))
    refuse(`rowScaled belongs to ${quantizersWith("rowScaled").join(", ")}; leave it out`);
  if (isSquare(tile)) refuse(`rowScaled needs 1x16 tiles; a ${tile} tile has rows of different amaxes`);
  if (rht || stochastic)
    refuse("rowScaled goes with neither the Hadamard transform nor stochastic rounding; drop one");
  const [ownRule] = row.rules;
  if (scaleRule !== ownRule) refuse(`rowScaled goes with the rule ${ownRule}; the rule is ${scaleRule}`);
}

/**
 * Returns a frozen spec. Settings that are not given have their default or off values. Throws `ArgumentError` for an invalid
 * spec.
 *
 * @shared
 */
export function makeSpec(quantizer: BlockFormatName, fields: Given<QuantizeSpec>): QuantizeSpec {
  const row = blockFormat(quantizer);
  const defaults: QuantizeSpec = {
    quantizer,
    format: row.elements[0] as ScalarFormat,
    tile: row.tiles[0] as Tile,
    scaleRule: row.rules[0] as ScaleRuleName,
    elementScaling: "multiply",
    pow2Scales: false,
    amaxEpsilon: 0,
    amaxLimit: 0,
    rht: false,
    rhtSigns: 0,
    stochastic: false,
    fourOverSix: "none",
    e4m3Max: 448,
    compact: false,
    rowScaled: false,
  };
  const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const spec: QuantizeSpec = { ...defaults, ...given };
  return requireSpec({ ...spec, format: resolveFormat(spec.format) });
}

/**
 * Returns a spec as text: the quantizer, the format, and the other settings that are not the defaults of `makeSpec`.
 *
 * @shared
 */
export function specText(spec: QuantizeSpec): string {
  const { quantizer, format } = spec;
  const defaults = new Map<string, unknown>(Object.entries(makeSpec(quantizer, { format })));
  const settings = Object.entries(spec).filter(([name, value]) => defaults.get(name) !== value);
  return [`${quantizer} ${format}`, ...settings.map(([name, value]) => `${name} ${value}`)].join(", ");
}

/**
 * Returns the signs of the Hadamard transform that the values of a copy passed through before they were quantized; undefined if
 * they were not transformed. Only columnwise copies are.
 *
 * @shared
 */
export function transformOf(
  { rht, rhtSigns }: Pick<QuantizeSpec, "rht" | "rhtSigns">,
  direction: Direction,
): number | undefined {
  return rht && direction === "columnwise" ? rhtSigns : undefined;
}

/** Throws `ArgumentError` unless a target was made with the spec of the quantizer that updates it. */
export function requireSameSpec(op: string, own: QuantizeSpec, made: QuantizeSpec): void {
  if (own === made) return;
  const fields = Object.entries(own) as [keyof QuantizeSpec, unknown][];
  const differs = fields.find(([key, value]) => made[key] !== value);
  if (!differs) return;
  const [key, value] = differs;
  throw new ArgumentError(
    `${op}: the target was made with ${key} ${made[key]}, this quantizer has ${value}; use the one that made it`,
  );
}
