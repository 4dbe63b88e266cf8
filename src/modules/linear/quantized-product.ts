/** The result of a product, quantized on request. */
import { hasGivenScale } from "../../formats/block.js";
import type { Quantizer } from "../../quantizers/quantizer.js";
import type { Gradient } from "../../tape/value.js";
import { ROWWISE } from "../../tensor/quantized.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";

/**
 * Returns a product, quantized if there is a quantizer. Delayed scaling quantizes the f32 product, as a GEMM with FP8 output
 * does; other recipes quantize the product rounded to `dtype` (numerics.md §6.3).
 */
export function quantizedProduct(
  quantizer: Quantizer | undefined,
  dtype: WideDType,
  product: (dtype: WideDType) => Tensor<WideDType>,
): Gradient {
  if (!quantizer) return product(dtype);
  quantizer.setUsage(ROWWISE);
  const wide = product(hasGivenScale(quantizer.spec) ? "f32" : dtype);
  const target = quantizer.makeEmpty(wide.backend, wide.shape, dtype);
  quantizer.updateQuantized(wide, target);
  wide.dispose();
  return target;
}
