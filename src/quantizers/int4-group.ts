/** The quantizer of INT4 with one f32 scale for each group of elements of a row, and in the columnwise copy of a column. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { anything, atLeastZero, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `Int4GroupQuantizer`. All fields are optional. */
export interface Int4GroupQuantizerOptions extends QuantizerOptions {
  /** The group that shares a scale: 128, 64 or 32 elements. Default 1x128. */
  readonly tile?: "1x128" | "1x64" | "1x32" | undefined;
  /** The rule by which an amax becomes a scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §3.6). Default f32Quotient. */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the integers (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /** A lower bound of the amax from which a scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
}

const checkOptions = optionsOf<Int4GroupQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  tile: anything,
  scaleRule: anything,
  elementScaling: anything,
  amaxEpsilon: atLeastZero,
});

/**
 * Quantizes to integers from -8 to 7, ties to even, two to a byte, with one f32 scale for each group of a row (numerics.md §3.9).
 * The columnwise copy has groups of each column, and is quantized separately. The number of columns must be a multiple of 32; the
 * last group of a line may be partial. NaN becomes 0.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class Int4GroupQuantizer extends Quantizer {
  constructor(options: Int4GroupQuantizerOptions = {}) {
    const ownOptions = checkOptions("Int4GroupQuantizer", options);
    const { tile, scaleRule, elementScaling, amaxEpsilon } = ownOptions;
    super(makeSpec("int4-group", { tile, scaleRule, elementScaling, amaxEpsilon }), ownOptions);
  }
}
