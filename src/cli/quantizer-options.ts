/** The options that choose a quantizer. `quantize` and `fuzz` share them. */
import type { Backend } from "../backends/backend.js";
import { dialectSettings } from "../dialects/quantizer-of.js";
import { DIALECT_NAMES, type DialectName } from "../dialects/table.js";
import { ArgumentError } from "../errors.js";
import {
  BLOCK_FORMAT_NAMES,
  type BlockFormatName,
  blockFormat,
  hasGivenScale,
  type QuantizerOption,
  quantizersWith,
  type Tile,
} from "../formats/block.js";
import { resolveFormat } from "../formats/derive.js";
import { ELEMENT_SCALING_NAMES, type ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { tensor, zeros } from "../ops/create.js";
import { quantizerNamed } from "../quantizers/named.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { RandomState } from "../quantizers/random-state.js";
import { DIRECTIONS, type Direction, type QuantizeSpec } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { SCALE_LAYOUTS } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import {
  choice,
  flag,
  float32,
  oneOf,
  optional,
  positiveFloat32,
  someOf,
  type Values,
  value,
} from "./options.js";
import { RANDOM_BITS, requireStochastic } from "./random-bits.js";
import { RANDOM } from "./shared-options.js";

/** The scale rules of quantizers that have several. */
const CHOSEN_RULES = [
  ...new Set(quantizersWith("scaleRule").flatMap((name) => blockFormat(name).rules)),
] as const;

/** The tiles of quantizers that have several. */
const CHOSEN_TILES = [...new Set(quantizersWith("tile").flatMap((name) => blockFormat(name).tiles))];

/** The element formats of quantizers that have several. */
const CHOSEN_FORMATS = [
  ...new Set(
    BLOCK_FORMAT_NAMES.map((name) => blockFormat(name).elements)
      .filter((elements) => elements.length > 1)
      .flat(),
  ),
];

export const QUANTIZER_OPTIONS = {
  dialect: optional<DialectName>({
    placeholder: "NAME",
    help: "scale, round and divide as another library does: one of lockstep dialects",
    parse: oneOf(DIALECT_NAMES),
  }),
  quantizer: {
    ...value<BlockFormatName>({
      placeholder: BLOCK_FORMAT_NAMES.join("|"),
      help: "quantizer: how elements share scales, and how scales are computed; required without --dialect; docs/cli.md has what each stores",
      parse: oneOf(BLOCK_FORMAT_NAMES),
      fallback: "mxfp8",
    }),
  },
  format: optional<ScalarFormat>({
    placeholder: CHOSEN_FORMATS.join("|"),
    help: "element format, for quantizers with a choice of formats (default e4m3; mxfp6: e2m3); docs/numerics.md defines each",
    parse: resolveFormat,
  }),
  tile: optional<Tile>({
    placeholder: CHOSEN_TILES.join("|"),
    help: "block of elements that share a scale (default 1x128, 1x32 or 1x16, depending on the quantizer); docs/cli.md lists those of each",
    parse: oneOf(CHOSEN_TILES),
  }),
  "scale-rule": optional<ScaleRuleName>({
    placeholder: CHOSEN_RULES.join("|"),
    help: "how an amax becomes a scale, where the quantizer has a choice (default: its own); docs/numerics.md defines each",
    parse: oneOf(CHOSEN_RULES),
  }),
  "element-scaling": optional<ElementScalingName>({
    placeholder: ELEMENT_SCALING_NAMES.join("|"),
    help: "how elements are scaled to the range of the format (default multiply); docs/numerics.md defines each",
    parse: oneOf(ELEMENT_SCALING_NAMES),
  }),
  "pow2-scales": flag(
    "fp8-current, fp8-block, fp8-row: round f32 scales down to powers of two (default for fp8-block)",
  ),
  "no-pow2-scales": flag(
    "fp8-current, fp8-block, fp8-row: allow any f32 scale (default for fp8-current and fp8-row)",
  ),
  "amax-epsilon": value({
    placeholder: "X",
    help: `${quantizersWith("amaxEpsilon").join(", ")}: lower bound of the amax from which a scale is computed`,
    parse: nonNegative,
    fallback: 0,
    shown: "0",
  }),
  "amax-limit": value({
    placeholder: "X",
    help: `${quantizersWith("amaxLimit").join(", ")}: upper bound of the amax from which a scale is computed; 0 is none`,
    parse: nonNegative,
    fallback: 0,
    shown: "0",
  }),
  scale: value({
    placeholder: "X",
    help: "fp8-delayed: factor by which elements are multiplied",
    parse: positiveFloat32,
    fallback: 1,
    shown: "1",
  }),
  rht: flag(
    "nvfp4: apply the random Hadamard transform before quantizing the columnwise copy (BF16 tensors only)",
  ),
  stochastic: flag(
    "MX formats and nvfp4: round elements stochastically, with the random bits of --seed and --offset: 8 for each element, so that the mean is too close to zero by less than 1/256 of the distance of two codes",
  ),
  ...RANDOM,
  ...RANDOM_BITS,
  "four-over-six": flag(
    "nvfp4: scale the largest element of each block to 4 or to 6, whichever gives the smaller error",
  ),
  "err-mode": optional<"mae" | "mse">({
    placeholder: "mae|mse",
    help: "nvfp4 with --four-over-six: error to minimize: mae, mean absolute; mse, mean squared (default mae)",
    parse: oneOf(["mae", "mse"]),
  }),
  "e4m3-max": optional<448 | 256>({
    placeholder: "448|256",
    help: "nvfp4 with --four-over-six: maximum block scale, 448 or 256 (default 256)",
    parse: (text) => (oneOf(["448", "256"])(text) === "448" ? 448 : 256),
  }),
  "row-scaled": flag(
    "nvfp4: an amax for each row in place of the tensor's, and in the columnwise copy for each column",
  ),
  usage: value<readonly Direction[]>({
    placeholder: "rowwise,columnwise",
    help: "copies to write",
    parse: someOf(DIRECTIONS),
    fallback: ["rowwise"],
    shown: "rowwise",
  }),
  scales: choice(SCALE_LAYOUTS, {
    help: "layout of scales",
    meanings: {
      logical: "without padding",
      padded: "padded for GEMM libraries",
      swizzled: "padded and in the 128x4 layout of cuBLASLt",
    },
    fallback: "logical",
  }),
} as const;

export type QuantizerSettings = Values<typeof QUANTIZER_OPTIONS>;

function nonNegative(text: string): number {
  const number = float32(text);
  if (number >= 0) return number;
  throw new ArgumentError(`"${text}" is not a number from 0`);
}

/** The field of the spec that each option sets. The option is rejected if the quantizer does not have the field. */
const SETS: Readonly<Record<string, QuantizerOption>> = {
  tile: "tile",
  "scale-rule": "scaleRule",
  "element-scaling": "elementScaling",
  "pow2-scales": "pow2Scales",
  "no-pow2-scales": "pow2Scales",
  "amax-epsilon": "amaxEpsilon",
  "amax-limit": "amaxLimit",
  rht: "rht",
  stochastic: "stochastic",
  "random-bits": "stochastic",
  "four-over-six": "fourOverSix",
  "err-mode": "fourOverSix",
  "e4m3-max": "e4m3Max",
  "row-scaled": "rowScaled",
};

/** The settings that a dialect fixes, by the names of their options. */
const OF_DIALECTS = {
  "scale-rule": "scaleRule",
  "element-scaling": "elementScaling",
  "amax-epsilon": "amaxEpsilon",
  "amax-limit": "amaxLimit",
} as const;

/**
 * Returns the settings with the quantizer and the settings of the dialect, if there is a dialect. Throws `ArgumentError` if there
 * is neither a quantizer nor a dialect, and for an option that the dialect fixes.
 */
export function withDialect<S extends QuantizerSettings>(settings: S, usedOptions: ReadonlySet<string>): S {
  const { dialect } = settings;
  if (dialect === undefined) {
    if (usedOptions.has("quantizer")) return settings;
    throw new ArgumentError("--quantizer is needed, or --dialect");
  }
  const conflicting = [...Object.keys(OF_DIALECTS), "pow2-scales", "no-pow2-scales"].find((option) =>
    usedOptions.has(option),
  );
  if (conflicting)
    throw new ArgumentError(`--${conflicting} is what --dialect ${dialect} says; leave one of them out`);
  const requested = usedOptions.has("quantizer") ? settings.quantizer : undefined;
  const { format, tile } = settings;
  const [quantizer, fixed] = dialectSettings(dialect, requested, { format, tile });
  const entries = Object.entries(OF_DIALECTS).flatMap(([option, field]) =>
    fixed[field] === undefined ? [] : [[option, fixed[field]] as const],
  );
  return { ...settings, ...Object.fromEntries(entries), quantizer, format: fixed.format, tile: fixed.tile };
}

/** Throws `ArgumentError` for an option that the quantizer lacks, and for options that exclude or require each other. */
export function requireApplicable({ quantizer }: QuantizerSettings, usedOptions: ReadonlySet<string>): void {
  for (const [option, field] of Object.entries(SETS)) {
    const quantizers = quantizersWith(field);
    if (!usedOptions.has(option) || quantizers.includes(quantizer)) continue;
    throw new ArgumentError(`--${option} is for ${quantizers.join(", ")}; the quantizer is ${quantizer}`);
  }
  if (usedOptions.has("scale") && !hasGivenScale({ quantizer })) {
    const quantizers = BLOCK_FORMAT_NAMES.filter((name) => hasGivenScale({ quantizer: name }));
    throw new ArgumentError(`--scale is for ${quantizers.join(", ")}; the quantizer is ${quantizer}`);
  }
  for (const option of ["err-mode", "e4m3-max"]) {
    if (usedOptions.has(option) && !usedOptions.has("four-over-six"))
      throw new ArgumentError(`--${option} is for --four-over-six; give both, or leave out --${option}`);
  }
  requireStochastic(usedOptions.has("random-bits"), usedOptions.has("stochastic"), "--stochastic");
  if (usedOptions.has("pow2-scales") && usedOptions.has("no-pow2-scales")) {
    throw new ArgumentError("--pow2-scales and --no-pow2-scales exclude each other");
  }
}

/** Returns the spec of the quantizer that the options choose. */
export function specOf(backend: Backend, settings: QuantizerSettings): QuantizeSpec {
  using _scope = new Scope();
  return makeQuantizer(backend, settings).quantizer.spec;
}

/** A new quantizer. Its random bits start at offset 0. `amaxRecord` is the tensor in which fp8-delayed stores the amax. */
export interface MadeQuantizer {
  readonly quantizer: Quantizer;
  readonly amaxRecord?: Tensor<"f32">;
}

/**
 * Creates the quantizer that the options choose. Throws `ArgumentError` for a format or tile that the quantizer lacks. The open
 * scope owns the tensors.
 */
export function makeQuantizer(backend: Backend, settings: QuantizerSettings): MadeQuantizer {
  const { quantizer: name, format, tile, seed, offset } = settings;
  const row = blockFormat(name);
  requireAmong(name, "format", format, row.elements);
  requireAmong(name, "tile", tile, row.tiles);
  requireAmong(name, "scale-rule", settings["scale-rule"], row.rules);
  const amaxRecord = row.scaleSource === "given" ? zeros(backend, "f32", [1]) : undefined;
  const scale = amaxRecord && tensor(backend, [settings.scale]);
  const selection = {
    scaleRule: settings["scale-rule"],
    elementScaling: settings["element-scaling"],
    pow2Scales: settings["pow2-scales"] || (settings["no-pow2-scales"] ? false : undefined),
    amaxEpsilon: settings["amax-epsilon"],
    amaxLimit: settings["amax-limit"],
    rht: settings.rht,
    stochastic: settings.stochastic,
    fourOverSix: settings["four-over-six"] ? (settings["err-mode"] ?? "mae") : "none",
    e4m3Max: settings["e4m3-max"],
    rowScaled: settings["row-scaled"],
  } as const;
  const quantizer = quantizerNamed(name, {
    ...selection,
    format,
    tile,
    scale,
    amax: amaxRecord,
    random: new RandomState(seed, offset),
    rowwise: settings.usage.includes("rowwise"),
    columnwise: settings.usage.includes("columnwise"),
    scaleLayout: settings.scales,
  });
  return amaxRecord ? { quantizer, amaxRecord } : { quantizer };
}

function requireAmong(
  quantizer: BlockFormatName,
  option: string,
  requested: string | undefined,
  names: readonly string[],
): void {
  if (requested === undefined || names.includes(requested)) return;
  throw new ArgumentError(
    `--${option} ${requested} is not one of ${names.join(", ")}, which ${quantizer} has`,
  );
}
