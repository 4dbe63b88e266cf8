/** Dequantization: codes and scales are converted back to f32, bf16 or f16 values. */
import {
  type Direction,
  type QuantizedCopy,
  type QuantizedTensor,
  requireQuantized,
} from "../../tensor/quantized.js";
import { wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, type WideDType } from "../../tensor/shape.js";
import { transformOf } from "../../tensor/spec.js";
import { Tensor } from "../../tensor/tensor.js";
import { compute } from "../execute.js";
import { inverseHadamard } from "./hadamard.js";

/**
 * Returns the values of `t` in its logical shape. A value is code * scale in f32 (numerics.md §2.1, §3.4, §4.7, §5.10), rounded
 * once to `dtype`; the default is the nominal dtype of `t`. The rowwise copy is read if there is one, else the columnwise copy.
 * If the columnwise copy was quantized with the random Hadamard transform, the inverse transform is applied to the f32 values
 * (numerics.md §5.5). A NaN code or scale gives NaN, in all 16 values that are transformed together.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ArgumentError` for a `dtype` other than f32, bf16 and
 * f16, `DisposedError` for a disposed tensor.
 */
export function dequantize(t: QuantizedTensor, dtype?: WideDType): Tensor<WideDType> {
  requireQuantized("dequantize", "t", t);
  if (dtype !== undefined) wideDType("dequantize", "dtype", dtype);
  const type = dtype ?? t.dtype;
  const direction: Direction = t.rowwise ? "rowwise" : "columnwise";
  const copy = t.copy(direction);
  const signs = transformOf(t.spec, direction);
  using scope = new Scope();
  if (signs === undefined) return scope.keep(codeValues(t, copy, type));
  return scope.keep(inverseHadamard(codeValues(t, copy, "f32"), signs, type).slice(0, t.shape));
}

/**
 * Returns code * scale of each element of a copy, rounded once to `dtype`, in the shape of `t`. If the copy was quantized with
 * the random Hadamard transform, these are the transformed values of all its rows.
 *
 * @shared
 */
export function codeValues<D extends WideDType>(
  { spec, shape }: Pick<QuantizedTensor, "spec" | "shape">,
  copy: QuantizedCopy,
  dtype: D,
): Tensor<D> {
  const { backend } = copy.data;
  const isTransformed = transformOf(spec, copy.geometry.direction) !== undefined;
  const [columns, rows] = asMatrix(copy.data.shape);
  const out = new Tensor(backend, dtype, isTransformed ? [rows, columns] : shape);
  return compute("dequantize", { spec, copy, out });
}
