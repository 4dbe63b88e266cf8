/** The quantizer whose result is dequantized again. */
import { guardReceivers, inherits, isObject } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { dequantize } from "../ops/quantize/dequantize.js";
import { describe } from "../options.js";
import { requireWide } from "../tensor/require.js";
import { Scope } from "../tensor/scope.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { Quantizer } from "./quantizer.js";

/**
 * Fake quantization: quantizes a tensor by another quantizer and returns the dequantized values, so that products compute in
 * high precision with the error of the quantization. A custom recipe returns one for a tensor, or in a `HybridQuantizer` for
 * one of its two copies. The other operand of each such product is in high precision too.
 *
 * @throws `ArgumentError` for an argument that is not a quantizer.
 */
export class FakeQuantizer {
  static {
    guardReceivers(this);
  }

  readonly #quantizer: Quantizer;

  /** @internal Whether `x` is a fake quantizer, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isObject(x) && #quantizer in x && inherits(this, x);
  }

  constructor(quantizer: Quantizer) {
    if (!(quantizer instanceof Quantizer))
      throw new ArgumentError(
        `FakeQuantizer: quantizer is ${describe(quantizer)}; it must be a quantizer, such as new MXFP8Quantizer()`,
      );
    this.#quantizer = quantizer;
    Object.freeze(this);
  }

  /** The quantizer whose values are dequantized. */
  get quantizer(): Quantizer {
    return this.#quantizer;
  }

  /**
   * Returns the values of the rowwise copy of `x`, rounded to the dtype of `x`. The caller disposes of the result, or a scope
   * does.
   *
   * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for a shape that the format's blocks do not
   * divide, `ArgumentError` for a scale or an amax on another backend, `DisposedError` for a disposed tensor.
   */
  quantize(x: Tensor): Tensor<WideDType> {
    const { dtype } = requireWide("quantize", "x", x);
    using scope = new Scope();
    const quantized = this.#quantizer.setUsage({ rowwise: true, columnwise: false }).quantize(x);
    return scope.keep(dequantize(quantized, dtype));
  }
}
