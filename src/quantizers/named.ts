/** Construction of quantizers by the name of their block format. */
import { ArgumentError } from "../errors.js";
import {
  type BlockFormatName,
  blockFormat,
  hasGemmReadyTile,
  hasGivenScale,
  type QuantizerOption,
  type Tile,
} from "../formats/block.js";
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { describe } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";
import { makeSpec } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import { QUANTIZER_CLASSES } from "./classes.gen.js";
import type { Quantizer, QuantizerOptions } from "./quantizer.js";
import type { RandomState } from "./random-state.js";

/**
 * The options of all quantizers together. An option that a quantizer does not have must have its off value or be left out.
 *
 * @shared
 */
export interface QuantizerSettings extends QuantizerOptions {
  readonly format?: ScalarFormat | undefined;
  readonly tile?: Tile | undefined;
  readonly scaleRule?: ScaleRuleName | undefined;
  readonly elementScaling?: ElementScalingName | undefined;
  readonly pow2Scales?: boolean | undefined;
  readonly amaxEpsilon?: number | undefined;
  readonly amaxLimit?: number | undefined;
  readonly rht?: boolean | undefined;
  readonly stochastic?: boolean | undefined;
  readonly fourOverSix?: FourOverSix | undefined;
  readonly e4m3Max?: 448 | 256 | undefined;
  readonly rowScaled?: boolean | undefined;
  /** For quantizers with a given scale: the scale, which is required, and the tensor that records amaxes. */
  readonly scale?: Tensor<"f32"> | undefined;
  readonly amax?: Tensor<"f32"> | undefined;
  /** The source of random bits, for quantizers that can round stochastically. */
  readonly random?: RandomState | undefined;
  /**
   * Whether rows of several ranks will be gathered. A quantizer that has the data layout COMPACT then uses it, because gathered
   * rows must keep the order of the input.
   */
  readonly gathered?: boolean | undefined;
}

/** The options that only some quantizers have. */
const OPTIONAL = [
  "tile",
  "scaleRule",
  "elementScaling",
  "pow2Scales",
  "amaxEpsilon",
  "amaxLimit",
  "rht",
  "stochastic",
  "fourOverSix",
  "e4m3Max",
  "rowScaled",
] as const satisfies readonly QuantizerOption[];

/**
 * Creates the quantizer of a block format. Throws `ArgumentError` for an unknown name, for a format or tile that the block
 * format does not have, and for a missing scale. It also throws for an option that the quantizer does not have, unless the
 * option has its off value.
 *
 * @shared
 */
export function quantizerNamed(name: BlockFormatName, settings: QuantizerSettings = {}): Quantizer {
  const row = blockFormat(name);
  const { format = row.elements[0], scale, amax, random, rowwise, columnwise, scaleLayout, shard } = settings;
  const spec = makeSpec(name, { format, tile: settings.tile });
  const options: Record<string, unknown> = { rowwise, columnwise, scaleLayout, shard };
  if (row.elements.length > 1) options.format = spec.format;
  for (const option of OPTIONAL) {
    const value = settings[option];
    if (row.options.includes(option)) options[option] = value;
    else if (value !== undefined && value !== spec[option])
      throw new ArgumentError(
        `${name}: ${option} is ${describe(value)}, and ${name} has no such choice; leave it out`,
      );
  }
  if (settings.gathered && hasGemmReadyTile(spec)) options.dataLayout = "COMPACT";
  if (hasGivenScale(spec)) Object.assign(options, { scale, amax });
  if (row.options.includes("stochastic")) options.random = random;
  return new QUANTIZER_CLASSES[name](options as never);
}
