/** Dequantization: codes and scales are converted back to f32, bf16 or f16 values. */
import { type Direction, type QuantizedTensor, requireQuantized } from "../../tensor/quantized.js";
import { wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/**
 * Returns the values of `t` in its logical shape. A value is code * scale in f32 (numerics.md §2.1, §3.4, §4.7, §5.10), rounded
 * once to `dtype`; the default is the nominal dtype of `t`. The rowwise copy is read if there is one, else the columnwise copy.
 * If the columnwise copy was quantized with the random Hadamard transform, its values are the transformed ones. A NaN code or
 * scale gives NaN.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ArgumentError` for a `dtype` other than f32, bf16 and
 * f16, `DisposedError` for a disposed tensor.
 */
export function dequantize(t: QuantizedTensor, dtype?: WideDType): Tensor<WideDType> {
  requireQuantized("dequantize", "t", t);
  if (dtype !== undefined) wideDType("dequantize", "dtype", dtype);
  const direction: Direction = t.rowwise ? "rowwise" : "columnwise";
  const copy = t.copy(direction);
  using scope = new Scope();
  const out = new Tensor(copy.data.backend, dtype ?? t.dtype, t.shape);
  execute(out.backend, "dequantize", { spec: t.spec, copy, out });
  return scope.keep(out);
}
