/** The quantizers of the OCP microscaling (MX) formats, with one E8M0 scale per 32 elements. */
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { anything, optionsOf } from "../options.js";
import { makeSpec } from "../tensor/spec.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";
import { STOCHASTIC_OPTIONS, StochasticQuantizer, type StochasticQuantizerOptions } from "./stochastic.js";

/** Options of the MX quantizers. All fields are optional. */
export interface MXQuantizerOptions<F extends ScalarFormat> extends StochasticQuantizerOptions {
  /** The element format. Default: e4m3 for MXFP8, e2m3 for MXFP6, e2m1 for MXFP4. */
  readonly format?: F | undefined;
  /**
   * The block that shares a scale. Default 1x32. With 32x32, as for weights, rowwise and columnwise copies have the same
   * codes if elements are rounded to nearest.
   */
  readonly tile?: "1x32" | "32x32" | undefined;
  /**
   * The rule by which the amax of a block becomes its scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §4.1). Default:
   * e8m0Up for MXFP8, as TransformerEngine; e8m0Floor for the others, as OCP MX.
   */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
}

/** Options of `MXINT8Quantizer`, which rounds to nearest. All fields are optional. */
export type MXINT8QuantizerOptions = Omit<MXQuantizerOptions<"s2f6">, keyof StochasticQuantizerOptions> &
  QuantizerOptions;

const OWN = { format: anything, tile: anything, scaleRule: anything, elementScaling: anything } as const;
const checkOptions = optionsOf<MXQuantizerOptions<ScalarFormat>>({ ...STOCHASTIC_OPTIONS, ...OWN });
const checkNearest = optionsOf<MXINT8QuantizerOptions>({ ...QUANTIZER_OPTIONS, ...OWN });

function specFields<F extends ScalarFormat>({
  format,
  tile,
  scaleRule,
  elementScaling,
  stochastic,
}: MXQuantizerOptions<F>) {
  return { format, tile, scaleRule, elementScaling, stochastic };
}

/**
 * Quantizes to MXFP8 as TransformerEngine does, if no other rule is chosen: the exponent of the scale is rounded up (numerics.md
 * §4). The default element format is e4m3.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class MXFP8Quantizer extends StochasticQuantizer {
  constructor(options: MXQuantizerOptions<"e4m3" | "e5m2"> = {}) {
    const ownOptions = checkOptions("MXFP8Quantizer", options);
    super(makeSpec("mxfp8", specFields(ownOptions)), ownOptions);
  }
}

/**
 * Quantizes to MXFP6 as OCP MX 1.0 §6.3 defines, if no other rule is chosen: the exponent of the scale is floor(log2 amax) -
 * emax. The default element format is e2m3.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class MXFP6Quantizer extends StochasticQuantizer {
  constructor(options: MXQuantizerOptions<"e2m3" | "e3m2"> = {}) {
    const ownOptions = checkOptions("MXFP6Quantizer", options);
    super(makeSpec("mxfp6", specFields(ownOptions)), ownOptions);
  }
}

/**
 * Quantizes to MXFP4 as OCP MX 1.0 §6.3 defines. Codes of the columnwise copy are stored transposed, packed along M; its scales
 * are not transposed.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class MXFP4Quantizer extends StochasticQuantizer {
  constructor(options: MXQuantizerOptions<"e2m1"> = {}) {
    const ownOptions = checkOptions("MXFP4Quantizer", options);
    super(makeSpec("mxfp4", specFields(ownOptions)), ownOptions);
  }
}

/**
 * Quantizes to MXINT8 as OCP MX 1.0 §6.3 defines, if no other rule is chosen. Elements are multiples of 2^-6 in two's complement
 * from -127/64 to 127/64; the code of -2 is not written, so that the range is symmetric. NaN becomes 0.
 *
 * @throws `ArgumentError` for an invalid option value.
 */
export class MXINT8Quantizer extends Quantizer {
  constructor(options: MXINT8QuantizerOptions = {}) {
    const ownOptions = checkNearest("MXINT8Quantizer", options);
    super(makeSpec("mxint8", specFields(ownOptions)), ownOptions);
  }
}
