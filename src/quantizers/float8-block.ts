/** The quantizer of FP8 with one f32 scale per 1x128 or 128x128 block. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { SCALE_RULE_NAMES, SCALE_RULES, type ScaleRuleName } from "../formats/scale-rules.js";
import { anything, atLeastZero, boolean, oneOf, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `Float8BlockQuantizer`. All fields are optional. */
export interface Float8BlockQuantizerOptions extends QuantizerOptions {
  /** The element format. Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** The block that shares a scale. Default 1x128, as for activations and gradients; the recipe uses 128x128 for weights. */
  readonly tile?: "1x128" | "128x128" | undefined;
  /** The rule by which an amax becomes a scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §3.6). Default f32. */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /** Whether scales are rounded down to powers of two. Default true under the rule f32, the only rule with this choice. */
  readonly pow2Scales?: boolean | undefined;
  /** A lower bound of the amax from which a block's scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /**
   * How the columnwise copy is stored. `GEMM_READY`: data and scales are transposed, as a GEMM reads them. `COMPACT`: both keep
   * the order of the input, as an all-gather needs them; only for tile 1x128. Default GEMM_READY.
   */
  readonly dataLayout?: "GEMM_READY" | "COMPACT" | undefined;
}

const checkOptions = optionsOf<Float8BlockQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  tile: anything,
  scaleRule: oneOf(SCALE_RULE_NAMES),
  elementScaling: anything,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
  dataLayout: oneOf(["GEMM_READY", "COMPACT"]),
});

/**
 * Quantizes to FP8 with one f32 scale per block (numerics.md §3). Rows and columns may have any size; a block at the edge
 * covers the elements that exist.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class Float8BlockQuantizer extends Quantizer {
  constructor(options: Float8BlockQuantizerOptions = {}) {
    const ownOptions = checkOptions("Float8BlockQuantizer", options);
    const { format, tile, scaleRule, elementScaling, amaxEpsilon, dataLayout } = ownOptions;
    const compact = dataLayout === "COMPACT";
    const pow2Scales =
      ownOptions.pow2Scales ?? (scaleRule === undefined || SCALE_RULES[scaleRule].powers === "asked");
    super(
      makeSpec("fp8-block", { format, tile, scaleRule, elementScaling, pow2Scales, amaxEpsilon, compact }),
      ownOptions,
    );
  }
}
