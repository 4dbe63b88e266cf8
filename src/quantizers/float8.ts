/**
 * The quantizers of FP8 with one scale per tensor: an existing scale (delayed scaling) or a scale computed from the tensor
 * (current scaling).
 */

import { guardReceivers } from "../brand.js";
import type { ElementScalingName } from "../formats/element-scalings.js";
import type { ScalarFormat } from "../formats/scalar.js";
import type { ScaleRuleName } from "../formats/scale-rules.js";
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
import { anything, atLeastZero, boolean, needed, optionsOf } from "../options.js";
import { requireScalar, requireTogether } from "../tensor/require.js";
import { makeSpec } from "../tensor/spec.js";
import type { Tensor } from "../tensor/tensor.js";
import { QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** Options of `Float8Quantizer`. Only `scale` is required. */
export interface Float8QuantizerOptions extends QuantizerOptions {
  /** The element format. Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** The factor by which elements are multiplied, f32 [1]. Each quantization reads it. */
  readonly scale: Tensor<"f32">;
  /** An f32 [1] tensor. If given, each quantization sets it to the maximum of its value and max |x|. */
  readonly amax?: Tensor<"f32"> | undefined;
}

const checkDelayed = optionsOf<Float8QuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  scale: needed(requireScalar),
  amax: requireScalar,
});

/**
 * Quantizes with a given scale, as delayed scaling does: codes are cast(x * scale), and the stored `scaleInv` is 1 / scale
 * (numerics.md §2.1).
 *
 * @throws `ArgumentError` for an invalid option value, `DTypeError` or `ShapeError` for a scale or an amax that is not f32 [1],
 * `DisposedError` for a disposed tensor.
 */
export class Float8Quantizer extends Quantizer {
  static {
    guardReceivers(this);
  }

  /** The factor by which elements are multiplied, f32 [1]. */
  readonly scale: Tensor<"f32">;
  /**
   * An f32 [1] tensor that each quantization sets to the maximum of its value and max |x|. Undefined if amaxes are not
   * recorded.
   */
  readonly amax: Tensor<"f32"> | undefined;

  constructor(options: Float8QuantizerOptions) {
    const ownOptions = checkDelayed("Float8Quantizer", options);
    requireTogether("Float8Quantizer", ownOptions.scale, ownOptions.amax);
    super(makeSpec("fp8-delayed", { format: ownOptions.format }), ownOptions);
    this.scale = ownOptions.scale;
    this.amax = ownOptions.amax;
  }

  /** Returns the scale, and the tensor that records the amax. */
  protected override inputs(): QuantizeInputs {
    return { scale: this.scale, amaxRecord: this.amax };
  }
}

/** Options of `Float8CurrentScalingQuantizer`. All fields are optional. */
export interface Float8CurrentScalingQuantizerOptions extends QuantizerOptions {
  /** The element format. Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** The rule by which an amax becomes a scale, one of `BLOCK_FORMATS[name].rules` (numerics.md §3.6). Default f32. */
  readonly scaleRule?: ScaleRuleName | undefined;
  /** How elements are scaled to the range of the format (numerics.md §3.6). Default: `multiply`. */
  readonly elementScaling?: ElementScalingName | undefined;
  /** Whether scales are rounded down to powers of two; only under the rule f32. Default false. */
  readonly pow2Scales?: boolean | undefined;
  /** A lower bound of the amax from which the scale is computed. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /**
   * An f32 [1] amax that replaces the amax of the tensor, for example the maximum over a group. Default: the amax of the tensor.
   */
  readonly amax?: Tensor<"f32"> | undefined;
}

const checkCurrent = optionsOf<Float8CurrentScalingQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  scaleRule: anything,
  elementScaling: anything,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
  amax: requireScalar,
});

/**
 * Quantizes with scale = maximum of the format / amax of the tensor itself (numerics.md §2.3).
 *
 * @throws `ArgumentError` for an invalid option value, `DTypeError` or `ShapeError` for an amax that is not f32 [1],
 * `DisposedError` for a disposed tensor.
 */
export class Float8CurrentScalingQuantizer extends Quantizer {
  static {
    guardReceivers(this);
  }

  readonly #amax: Tensor<"f32"> | undefined;

  constructor(options: Float8CurrentScalingQuantizerOptions = {}) {
    const ownOptions = checkCurrent("Float8CurrentScalingQuantizer", options);
    const { format, scaleRule, elementScaling, pow2Scales, amaxEpsilon } = ownOptions;
    super(
      makeSpec("fp8-current", { format, scaleRule, elementScaling, pow2Scales, amaxEpsilon }),
      ownOptions,
    );
    this.#amax = ownOptions.amax;
  }

  /** Returns the amax that replaces the amax of the tensor, if one was given. */
  protected override inputs(): QuantizeInputs {
    return { amax: this.#amax };
  }
}
