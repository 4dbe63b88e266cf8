/** Codes and scales back to wide values. */
import { type Direction, type QuantizedTensor, requireQuantized } from "../../tensor/quantized.js";
import { wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/**
 * The values of `t` in its logical shape, from the rowwise copy where there is one, rounded once to `dtype`, by
 * default the type it stands for:
 * code times scale in f32 (numerics.md §2.1, §3.4, §4.7, §5.10). The columnwise copy of a tensor quantized with
 * the random Hadamard transform gives the transformed values, as its codes stand for those.
 * A NaN among codes or scales gives NaN.
 *
 * @throws `DTypeError` for what is not quantized, `ArgumentError` for a type to dequantize to that is not wide,
 * `DisposedError` for a tensor that was disposed of.
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
