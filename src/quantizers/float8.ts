/** Per-tensor FP8, with a scale from the past (delayed) or from the tensor itself (current). */

import type { ScalarFormat } from "../formats/scalar.js";
import type { QuantizeInputs } from "../ops/quantize/quantize.js";
import { anything, atLeastZero, boolean, needed, optionsOf } from "../options.js";
import { requireScalar, requireTogether } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";
import { makeSpec, QUANTIZER_OPTIONS, Quantizer, type QuantizerOptions } from "./quantizer.js";

/** What `Float8Quantizer` takes; `scale` is needed. */
export interface Float8QuantizerOptions extends QuantizerOptions {
  /** Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** The factor elements are multiplied by, f32 [1]. */
  readonly scale: Tensor<"f32">;
  /** Where given, raised to max |x| by each quantization, f32 [1]. */
  readonly amax?: Tensor<"f32"> | undefined;
}

const checkDelayed = optionsOf<Float8QuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  scale: needed(requireScalar),
  amax: requireScalar,
});

/**
 * Delayed scaling: q = cast(x * scale), scaleInv = 1/scale (numerics.md §2.1).
 *
 * @throws `ArgumentError` for an option outside its domain, `DTypeError` or `ShapeError` for a scale or an amax that is not
 * f32 [1], `DisposedError` for a tensor that was disposed of.
 */
export class Float8Quantizer extends Quantizer {
  /** The factor of elements, f32 [1], read by each quantization. */
  readonly scale: Tensor<"f32">;
  /** Raised to max |x| by each quantization, f32 [1]. Undefined where none is recorded. */
  readonly amax: Tensor<"f32"> | undefined;

  constructor(options: Float8QuantizerOptions) {
    checkDelayed("Float8Quantizer", options);
    requireTogether("Float8Quantizer", options.scale, options.amax);
    super(makeSpec("fp8-delayed", { format: options.format }), options);
    this.scale = options.scale;
    this.amax = options.amax;
  }

  /** The scale, and where the amax goes. */
  protected override inputs(): QuantizeInputs {
    return { scale: this.scale, amaxRecord: this.amax };
  }
}

/** What `Float8CurrentScalingQuantizer` takes; every field may be left out. */
export interface Float8CurrentScalingQuantizerOptions extends QuantizerOptions {
  /** Default e4m3. */
  readonly format?: ScalarFormat | undefined;
  /** Cut scales to powers of two. Default false. */
  readonly pow2Scales?: boolean | undefined;
  /** Lower bound of the amax. Default 0. */
  readonly amaxEpsilon?: number | undefined;
  /** Use this amax, f32 [1], in place of the tensor's own: a group's maximum. */
  readonly amax?: Tensor<"f32"> | undefined;
}

const checkCurrent = optionsOf<Float8CurrentScalingQuantizerOptions>({
  ...QUANTIZER_OPTIONS,
  format: anything,
  pow2Scales: boolean,
  amaxEpsilon: atLeastZero,
  amax: requireScalar,
});

/**
 * Current scaling: scale = max / amax of the tensor itself (numerics.md §2.3).
 *
 * @throws `ArgumentError` for an option outside its domain, `DTypeError` or `ShapeError` for a scale or an amax that is not
 * f32 [1], `DisposedError` for a tensor that was disposed of.
 */
export class Float8CurrentScalingQuantizer extends Quantizer {
  readonly #amax: Tensor<"f32"> | undefined;

  constructor(options: Float8CurrentScalingQuantizerOptions = {}) {
    checkCurrent("Float8CurrentScalingQuantizer", options);
    const { format, pow2Scales, amaxEpsilon } = options;
    super(makeSpec("fp8-current", { format, pow2Scales, amaxEpsilon: amaxEpsilon }), options);
    this.#amax = options.amax;
  }

  /** The amax in place of the tensor's own, where one was given. */
  protected override inputs(): QuantizeInputs {
    return { amax: this.#amax };
  }
}
