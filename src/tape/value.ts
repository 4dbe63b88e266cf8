/** What layers compute with, and gradients of it. */
import { DTypeError } from "../errors.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { hasWideType, type Tensor } from "../tensor/tensor.js";

/** What layers compute with: wide values, or quantized ones. */
export type Value = Tensor | QuantizedTensor;

/** The gradient of a value: wide, or quantized by a layer that was asked for that. */
export type Gradient = Tensor<WideDType> | QuantizedTensor;

/** `x` as a wide tensor; throws `DTypeError` for a quantized one. */
export function wideOf(name: string, x: Value): Tensor<WideDType> {
  if (x instanceof QuantizedTensor)
    throw new DTypeError(
      `${name} is quantized (${x.spec.quantizer}); it is needed in f32, bf16 or f16; dequantize it`,
    );
  if (hasWideType(x)) return x;
  throw new DTypeError(`${name} is ${x.dtype}; it is needed in f32, bf16 or f16`);
}
