/** The quantizer of FP4 with one UE5M3 scale per 16 elements and no per-tensor scale. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import { anything, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `FP4UE5M3Quantizer`. All fields are optional. */
export interface FP4UE5M3QuantizerOptions extends QuantizerOptions {
  /** The block that shares a scale. Default 1x16. With 16x16, both copies have the same scales and codes. */
  readonly tile?: "1x16" | "16x16" | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
}

const checkOptions = optionsOf<FP4UE5M3QuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  tile: anything,
  elementScaling: anything,
});

/**
 * Quantizes to e2m1 with one ue5m3 scale for each block. The range of ue5m3 makes the per-tensor scale of NVFP4 unnecessary
 * (numerics.md §5.12). The number of columns must be a multiple of 16.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class FP4UE5M3Quantizer extends Quantizer {
  constructor(options: FP4UE5M3QuantizerOptions = {}) {
    const ownOptions = checkOptions("FP4UE5M3Quantizer", options);
    const { tile, elementScaling } = ownOptions;
    super(makeSpec("fp4-ue5m3", { tile, elementScaling }), ownOptions);
  }
}
