/** The quantizer of INT8 with one f32 scale for each row, and in the columnwise copy for each column. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { anything, atLeastZero, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `Int8RowQuantizer`. All fields are optional. */
export interface Int8RowQuantizerOptions extends QuantizerOptions {
  /** The rule by which an amax becomes a scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §3.6). Default f32Quotient. */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the integers (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /** A lower bound of the amax from which a scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /** An upper bound of the amax from which a scale is computed; larger elements saturate. Default 0, which is none. */
  readonly amaxLimit?: number | undefined;
}

const checkOptions = optionsOf<Int8RowQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  scaleRule: anything,
  elementScaling: anything,
  amaxEpsilon: atLeastZero,
  amaxLimit: atLeastZero,
});

/**
 * Quantizes to integers from -128 to 127, ties to even, with one f32 scale for each row from the amax of the whole row
 * (numerics.md §3.8). The columnwise copy has one for each column, and is quantized separately. Rows and columns may have any
 * size. NaN becomes 0.
 *
 * @throws `ArgumentError` for an invalid option value, and for a limit below `amaxEpsilon`.
 */
export class Int8RowQuantizer extends Quantizer {
  constructor(options: Int8RowQuantizerOptions = {}) {
    const ownOptions = checkOptions("Int8RowQuantizer", options);
    const { scaleRule, elementScaling, amaxEpsilon, amaxLimit } = ownOptions;
    super(makeSpec("int8-row", { scaleRule, elementScaling, amaxEpsilon, amaxLimit }), ownOptions);
  }
}
