/** The values that layers compute with, and their gradients. */
import { DTypeError } from "../errors.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { hasWideType, type Tensor } from "../tensor/tensor.js";

/** A tensor that layers compute with: plain or quantized. */
export type Value = Tensor | QuantizedTensor;

/** The gradient of a value: wide, or quantized by a layer called with `fp8Grad`. */
export type Gradient = Tensor<WideDType> | QuantizedTensor;

/** `x` as a wide tensor. Throws `DTypeError` for any other. */
export function wideOf(name: string, x: Value): Tensor<WideDType> {
  if (x instanceof QuantizedTensor)
    throw new DTypeError(
      `${name} is quantized (${x.spec.quantizer}); it is needed in f32, bf16 or f16; dequantize it`,
    );
  if (hasWideType(x)) return x;
  throw new DTypeError(`${name} is ${x.dtype}; it is needed in f32, bf16 or f16`);
}
