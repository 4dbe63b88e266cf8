/** The OCP microscaling formats: an E8M0 scale for each 32 elements. */
import type { ScalarFormat } from "../formats/scalar.js";
import { anything, optionsOf } from "../options.js";
import { makeSpec, QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** What the MX quantizers take: element format, tile, copies. */
export interface MXQuantizerOptions<F extends ScalarFormat> extends QuantizerOptions {
  /** The element format. Default: the first that the quantizer has. */
  readonly format?: F | undefined;
  /** Default 1x32; 32x32 gives both directions the same codes (weights). */
  readonly tile?: "1x32" | "32x32" | undefined;
}

const checkOptions = optionsOf<MXQuantizerOptions<ScalarFormat>>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  tile: anything,
});

/**
 * MXFP8 as TransformerEngine makes it: the scale's exponent is rounded up (numerics.md §4). Default e4m3.
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class MXFP8Quantizer extends Quantizer {
  constructor(options: MXQuantizerOptions<"e4m3" | "e5m2"> = {}) {
    checkOptions("MXFP8Quantizer", options);
    super(makeSpec("mxfp8", { format: options.format, tile: options.tile }), options);
  }
}

/**
 * MXFP6 of OCP MX 1.0 §6.3: the shared exponent is floor(log2 amax) - emax. Default e2m3.
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class MXFP6Quantizer extends Quantizer {
  constructor(options: MXQuantizerOptions<"e2m3" | "e3m2"> = {}) {
    checkOptions("MXFP6Quantizer", options);
    super(makeSpec("mxfp6", { format: options.format, tile: options.tile }), options);
  }
}

/**
 * MXFP4 of OCP MX 1.0 §6.3. Columnwise codes are stored transposed, packed along M; their scales are not.
 *
 * @throws `ArgumentError` for an option outside its domain.
 */
export class MXFP4Quantizer extends Quantizer {
  constructor(options: MXQuantizerOptions<"e2m1"> = {}) {
    checkOptions("MXFP4Quantizer", options);
    super(makeSpec("mxfp4", { format: options.format, tile: options.tile }), options);
  }
}
