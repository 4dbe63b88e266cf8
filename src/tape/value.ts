/** The values that layers compute with, and their gradients. A "wide" tensor is one of type f32, bf16 or f16. */
import { DTypeError } from "../errors.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import type { WideDType } from "../tensor/shape.js";
import { hasWideType, type Tensor } from "../tensor/tensor.js";

/** A tensor that layers compute with, quantized or not. */
export type Value = Tensor | QuantizedTensor;

/** Returns the tensors of a value: the codes, scales and amaxes of a quantized tensor, or the tensor itself. */
export function membersOf(value: Value): readonly Tensor[] {
  return value instanceof QuantizedTensor ? value.members : [value];
}

/** The gradient of a value. It is wide, or quantized if a layer with `fp8Grad` computed it. */
export type Gradient = Tensor<WideDType> | QuantizedTensor;

/** Returns `x` if it is a wide tensor. Throws `DTypeError` otherwise. */
export function wideOf(name: string, x: Value): Tensor<WideDType> {
  if (x instanceof QuantizedTensor)
    throw new DTypeError(
      `${name} is quantized (${x.spec.quantizer}); it is needed in f32, bf16 or f16; dequantize it`,
    );
  if (hasWideType(x)) return x;
  throw new DTypeError(`${name} is ${x.dtype}; it is needed in f32, bf16 or f16`);
}
