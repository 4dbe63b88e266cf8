/** The quantizer of FP8 with one f32 scale for each row, and in the columnwise copy for each column. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { anything, atLeastZero, boolean, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `Float8RowQuantizer`. All fields are optional. */
export interface Float8RowQuantizerOptions extends QuantizerOptions {
  /** The element format. Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** The rule by which an amax becomes a scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §3.6). Default f32. */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /** Whether scales are rounded down to powers of two; only under the rule f32. Default false. */
  readonly pow2Scales?: boolean | undefined;
  /** A lower bound of the amax from which a scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /** An upper bound of the amax from which a scale is computed; larger elements saturate. Default 0, which is none. */
  readonly amaxLimit?: number | undefined;
}

const checkOptions = optionsOf<Float8RowQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  scaleRule: anything,
  elementScaling: anything,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
  amaxLimit: atLeastZero,
});

/**
 * Quantizes to FP8 with one f32 scale for each row, from the amax of the whole row: scales per token of activations, per channel
 * of weights (numerics.md §3.7). The columnwise copy has one for each column, and is quantized separately. Rows and columns may
 * have any size.
 *
 * @throws `ArgumentError` for an invalid option value, and for a limit below `amaxEpsilon`.
 */
export class Float8RowQuantizer extends Quantizer {
  constructor(options: Float8RowQuantizerOptions = {}) {
    const ownOptions = checkOptions("Float8RowQuantizer", options);
    const { format, scaleRule, elementScaling, pow2Scales, amaxEpsilon, amaxLimit } = ownOptions;
    super(
      makeSpec("fp8-row", { format, scaleRule, elementScaling, pow2Scales, amaxEpsilon, amaxLimit }),
      ownOptions,
    );
  }
}
