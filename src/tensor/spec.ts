/** Creates and checks a `QuantizeSpec`: every field must be valid, and the fields must not exclude each other. */
import { ArgumentError } from "../errors.js";
import {
  BLOCK_FORMAT_NAMES,
  type BlockFormat,
  type BlockFormatName,
  blockFormat,
  hasGemmReadyTile,
  isSquare,
  type QuantizerOption,
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

/** The specs that `requireSpec` returned. They are frozen copies, so they remain valid. */
const checkedSpecs = new WeakSet<QuantizeSpec>();

/**
 * Returns a frozen copy of `spec`, or `spec` itself if it is such a copy. Throws `ArgumentError` unless it is valid.
 */
export function requireSpec(spec: QuantizeSpec): QuantizeSpec {
  if (checkedSpecs.has(spec)) return spec;
  const copy = Object.freeze(checkFields("a quantizer's spec", spec));
  const { quantizer, format, tile, scaleRule, elementScaling } = copy;
  const row = blockFormat(quantizer);
  requireOneOf(quantizer, "format", format, row.elements);
  requireOneOf(quantizer, "tile", tile, row.tiles);
  requireOneOf(quantizer, "scaleRule", scaleRule, row.rules);
  const scalings = scalingsOf(scaleRule, format);
  requireOneOf(`${quantizer} by ${scaleRule}`, "elementScaling", elementScaling, scalings);
  requireCompatible(copy);
  checkedSpecs.add(copy);
  return copy;
}

function requireOneOf(quantizer: string, name: string, value: string, allowed: readonly string[]): void {
  if (!allowed.includes(value))
    throw new ArgumentError(`${quantizer}: ${name} ${named(value)} is not one of ${allowed.join(", ")}`);
}

/** Throws `ArgumentError` for a setting that the quantizer does not have, and for settings that exclude each other. */
function requireCompatible(spec: QuantizeSpec): void {
  const row = blockFormat(spec.quantizer);
  const rule = CONFLICTS.find(({ applies }) => applies(spec, row));
  if (rule) throw new ArgumentError(`${spec.quantizer}: ${rule.message(spec, row)}`);
}

/** A combination of settings that is refused. */
interface Conflict {
  readonly applies: (spec: QuantizeSpec, row: BlockFormat) => boolean;
  /** The message: what is wrong, and what to do. */
  readonly message: (spec: QuantizeSpec, row: BlockFormat) => string;
}

const lacks = ({ options }: BlockFormat, option: QuantizerOption): boolean => !options.includes(option);
const owners = (option: QuantizerOption): string => quantizersWith(option).join(", ");
const isFourOverSix = ({ fourOverSix }: QuantizeSpec): boolean => fourOverSix !== "none";

/** Returns the conflict of an option that only some quantizers have. It applies if `isSet`. */
function optionOf(
  option: QuantizerOption,
  isSet: (spec: QuantizeSpec) => boolean,
  subject: string,
): Conflict {
  const leave = subject === option ? "it" : "them";
  return {
    applies: (spec, row) => isSet(spec) && lacks(row, option),
    message: () =>
      `${subject} belong${subject === option ? "s" : ""} to ${owners(option)}; leave ${leave} out`,
  };
}

const NVFP4_OPTIONS = "the Hadamard transform, stochastic rounding, 4over6 and e4m3Max";

/** All conflicts. The first one that applies is reported. */
const CONFLICTS: readonly Conflict[] = [
  {
    applies: (spec) => spec.compact && !hasGemmReadyTile(spec),
    message: ({ tile }) => `COMPACT is a layout of 1x128 tiles; the tile is ${tile}; leave dataLayout out`,
  },
  {
    applies: ({ pow2Scales }, { scale }) => pow2Scales && scale !== "f32",
    message: () => "pow2Scales is for f32 scales; leave it out",
  },
  optionOf("pow2Scales", ({ pow2Scales }) => pow2Scales, "pow2Scales"),
  {
    applies: ({ pow2Scales, scaleRule }) => pow2Scales && SCALE_RULES[scaleRule].powers !== "asked",
    message: ({ scaleRule }) => `pow2Scales is for other rules than ${scaleRule}; leave it out`,
  },
  optionOf("amaxLimit", ({ amaxLimit }) => amaxLimit !== 0, "amaxLimit"),
  {
    applies: ({ amaxLimit, amaxEpsilon }) =>
      amaxLimit !== 0 && (amaxLimit < amaxEpsilon || Math.fround(amaxLimit) === 0),
    message: ({ amaxLimit, amaxEpsilon }) =>
      `amaxLimit ${amaxLimit} is below amaxEpsilon ${amaxEpsilon} or zero as f32; give a larger one, or 0 for none`,
  },
  optionOf("rht", ({ rht, rhtSigns }) => rht || rhtSigns !== 0, NVFP4_OPTIONS),
  optionOf("stochastic", ({ stochastic }) => stochastic, NVFP4_OPTIONS),
  optionOf("fourOverSix", isFourOverSix, NVFP4_OPTIONS),
  optionOf("e4m3Max", ({ e4m3Max }) => e4m3Max !== 448, NVFP4_OPTIONS),
  {
    applies: (spec, { tensorAmax, rules }) =>
      tensorAmax && spec.scaleRule !== rules[0] && (spec.rht || spec.stochastic || isFourOverSix(spec)),
    message: ({ scaleRule }, { rules }) =>
      `the Hadamard transform, stochastic rounding and 4over6 go with the rule ${rules[0]}; the rule is ${scaleRule}`,
  },
  {
    applies: ({ stochastic, elementScaling }) => stochastic && decidesTies(elementScaling),
    message: ({ elementScaling }) =>
      `${elementScaling} defines the rounding of ties, and stochastic rounding has no ties; drop one of the two`,
  },
  {
    applies: (spec) => isFourOverSix(spec) && (spec.rht || spec.stochastic),
    message: () => "4over6 goes with neither the Hadamard transform nor stochastic rounding; drop one",
  },
  {
    applies: ({ rht, tile }) => rht && isSquare(tile),
    message: () => "the Hadamard transform needs 1x16 tiles; 16x16 tiles share codes between directions",
  },
  {
    applies: ({ rht, rhtSigns }) => rhtSigns !== 0 && !rht,
    message: () => "rhtSigns are for the Hadamard transform; set rht, or leave them out",
  },
  optionOf("rowScaled", ({ rowScaled }) => rowScaled, "rowScaled"),
  {
    applies: ({ rowScaled, tile }) => rowScaled && isSquare(tile),
    message: ({ tile }) => `rowScaled needs 1x16 tiles; a ${tile} tile has rows of different amaxes`,
  },
  {
    applies: ({ rowScaled, rht, stochastic }) => rowScaled && (rht || stochastic),
    message: () => "rowScaled goes with neither the Hadamard transform nor stochastic rounding; drop one",
  },
  {
    applies: ({ rowScaled, scaleRule }, { rules }) => rowScaled && scaleRule !== rules[0],
    message: ({ scaleRule }, { rules }) =>
      `rowScaled goes with the rule ${rules[0]}; the rule is ${scaleRule}`,
  },
  {
    applies: (spec) => spec.e4m3Max === 256 && !isFourOverSix(spec),
    message: () => "e4m3Max 256 belongs to 4over6; set fourOverSix, or leave e4m3Max at 448",
  },
];

/**
 * Returns a frozen spec. Absent settings have their default or off values. Throws `ArgumentError` for an invalid
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
  const settings = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
  const spec: QuantizeSpec = { ...defaults, ...settings };
  return requireSpec({ ...spec, format: resolveFormat(spec.format) });
}

/**
 * Returns a spec as a string: the quantizer, the format, and the other settings that are not the defaults of `makeSpec`.
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
 * Returns the signs of the Hadamard transform that was applied before a copy was quantized; undefined without a transform. Only
 * columnwise copies are transformed.
 *
 * @shared
 */
export function transformOf(
  { rht, rhtSigns }: Pick<QuantizeSpec, "rht" | "rhtSigns">,
  direction: Direction,
): number | undefined {
  return rht && direction === "columnwise" ? rhtSigns : undefined;
}

/** Throws `ArgumentError` unless the target's spec equals the spec of the quantizer that updates it. */
export function requireSameSpec(op: string, spec: QuantizeSpec, targetSpec: QuantizeSpec): void {
  if (spec === targetSpec) return;
  const fields = Object.entries(spec) as [keyof QuantizeSpec, unknown][];
  const difference = fields.find(([key, value]) => targetSpec[key] !== value);
  if (!difference) return;
  const [key, value] = difference;
  throw new ArgumentError(
    `${op}: the target was made with ${key} ${targetSpec[key]}, this quantizer has ${value}; use the one that made it`,
  );
}
