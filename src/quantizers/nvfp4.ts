/** The quantizer of NVFP4: one E4M3 scale per 16 elements and one f32 factor per tensor. */
import { guardReceivers } from "../brand.js";
import { ArgumentError } from "../errors.js";
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import { RHT_SIGNS } from "../ops/quantize/hadamard.js";
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
import { anything, boolean, oneOf, optionsOf } from "../options.js";
import type { FourOverSix } from "../tensor/quantized.js";
import { requireScalar, requireTogether } from "../tensor/require.js";
import { FOUR_OVER_SIX, makeSpec } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import { STOCHASTIC_OPTIONS, StochasticQuantizer, type StochasticQuantizerOptions } from "./stochastic.js";

/** Options of `NVFP4Quantizer`. All fields are optional. */
export interface NVFP4QuantizerOptions extends StochasticQuantizerOptions {
  /**
   * The block that shares a scale. Default 1x16. With 16x16, as for weights, rowwise and columnwise copies have the same scales
   * and, if rounded to nearest, the same codes. 4over6 is an exception: it sums the errors of a tile in different orders for
   * the two copies and may choose differently (numerics.md §5.8).
   */
  readonly tile?: "1x16" | "16x16" | undefined;
  /**
   * The rule by which amaxes become scales, one of `BLOCK_FORMATS.nvfp4.rules` (numerics.md §5.11). Default: twoLevel, as
   * TransformerEngine. The other rules exclude the Hadamard transform, stochastic rounding and 4over6.
   */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /**
   * Whether the data of the columnwise copy pass through the random Hadamard transform first. The input must be bf16. Default
   * false.
   */
  readonly rht?: boolean | undefined;
  /** With `rht`: whether the transform uses the fixed sign vector `RHT_SIGNS`; if false, it uses no signs. Default true. */
  readonly randomSigns?: boolean | undefined;
  /** The error measure by which each block chooses between a maximum element of 6 and of 4. Default `none`: always 6. */
  readonly fourOverSix?: FourOverSix | undefined;
  /** The maximum of block scales. Default 448, or 256 with `fourOverSix`. */
  readonly e4m3Max?: 448 | 256 | undefined;
  /**
   * Whether amaxes are per row instead of per tensor, and per column in the columnwise copy, as activations have under
   * TransformerEngine's `row_scaled_activation` (numerics.md §5.9). It requires 1x16 tiles and the rule twoLevel, allows 4over6,
   * and excludes the Hadamard transform, stochastic rounding and a given amax. Default false.
   */
  readonly rowScaled?: boolean | undefined;
  /**
   * An f32 [1] amax that replaces the amax of the tensor, for example the maximum over a group. It must be neither negative nor
   * NaN.
   */
  readonly amax?: Tensor<"f32"> | undefined;
  /** As `amax`, for the columnwise copy. With `rht` it is the amax of the transformed data. */
  readonly amaxColumnwise?: Tensor<"f32"> | undefined;
}

const checkOptions = optionsOf<NVFP4QuantizerOptions>({
  ...STOCHASTIC_OPTIONS,
  tile: anything,
  scaleRule: anything,
  elementScaling: anything,
  rht: boolean,
  randomSigns: boolean,
  fourOverSix: oneOf(FOUR_OVER_SIX),
  e4m3Max: oneOf([448, 256]),
  rowScaled: boolean,
  amax: requireScalar,
  amaxColumnwise: requireScalar,
});

/**
 * Quantizes to NVFP4, which scales on two levels (numerics.md §5). The number of columns must be a multiple of 16.
 *
 * @throws `ArgumentError` for an invalid option value, `DTypeError` or `ShapeError` for an amax that is not f32 [1],
 * `DisposedError` for a disposed tensor.
 */
export class NVFP4Quantizer extends StochasticQuantizer {
  static {
    guardReceivers(this);
  }

  readonly #amax: Pick<QuantizeInputs, "amax" | "amaxColumnwise">;

  constructor(options: NVFP4QuantizerOptions = {}) {
    const ownOptions = checkOptions("NVFP4Quantizer", options);
    const {
      tile,
      scaleRule,
      elementScaling,
      rht = false,
      stochastic = false,
      fourOverSix = "none",
      rowScaled,
    } = ownOptions;
    requireTogether("NVFP4Quantizer", ownOptions.amax, ownOptions.amaxColumnwise);
    const rhtSigns = rht && ownOptions.randomSigns !== false ? RHT_SIGNS : 0;
    const e4m3Max = ownOptions.e4m3Max ?? (fourOverSix === "none" ? 448 : 256);
    const rule = { tile, scaleRule, elementScaling };
    const choices = { rht, rhtSigns, stochastic, fourOverSix, e4m3Max, rowScaled };
    super(makeSpec("nvfp4", { ...rule, ...choices }), ownOptions);
    if (rowScaled && (ownOptions.amax || ownOptions.amaxColumnwise))
      throw new ArgumentError(
        "NVFP4Quantizer: amax is that of a whole tensor, and rowScaled has one for each row; drop one of the two",
      );
    this.#amax = { amax: ownOptions.amax, amaxColumnwise: ownOptions.amaxColumnwise };
  }

  /** Returns the amaxes that were given and, if elements are rounded stochastically, the next random bits. */
  protected override inputs(): QuantizeInputs {
    return { ...super.inputs(), ...this.#amax };
  }
}
