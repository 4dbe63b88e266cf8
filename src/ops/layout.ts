/** Rearrangements that change no value. */
import { ShapeError } from "../errors.js";
import { copyGeometry } from "../tensor/geometry.js";
import type { Direction, QuantizedCopy, QuantizedTensor, ScaleLayout } from "../tensor/quantized.js";
import { Scope } from "../tensor/scope.js";
import { asMatrix } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";
import { execute } from "./execute.js";

/** The transpose [K,M] of `x` [M,K]; leading dimensions are flattened into M. Any element type. */
export function transpose<X extends Tensor>(x: X): Tensor<X["dtype"]> {
  const [rows, columns] = asMatrix(x.shape);
  if (x.dtype === "e2m1" && rows % 2 !== 0) {
    throw new ShapeError(
      `transpose: FP4 codes share bytes and x has ${rows} rows, which become columns; pad to ${rows + 1}`,
    );
  }
  using scope = new Scope();
  const out = new Tensor(x.backend, x.dtype, [columns, rows]);
  execute(x.backend, "transpose", { x, out });
  return scope.keep(out);
}

/** The scales of one copy of `t` in another layout, as a new tensor. Padding is zero. */
export function relayoutScales(t: QuantizedTensor, direction: Direction, to: ScaleLayout): Tensor {
  return relayout(t.copy(direction).scaleInv, t, direction, t.scaleLayout, to);
}

/** The columnwise copy of a tensor whose scales cover squares or all of it: codes and scales transposed. */
export function transposeCopy(t: QuantizedTensor): QuantizedCopy {
  using scope = new Scope();
  const data = transpose(t.copy("rowwise").data);
  const logical = transpose(relayoutScales(t, "rowwise", "logical"));
  const scaleInv = relayout(logical, t, "columnwise", "logical", t.scaleLayout);
  return { data: scope.keep(data), scaleInv: scope.keep(scaleInv) };
}

function relayout(
  x: Tensor,
  { spec, shape }: QuantizedTensor,
  direction: Direction,
  from: ScaleLayout,
  to: ScaleLayout,
): Tensor {
  const [rows, columns] = asMatrix(shape);
  const { scaleType, scaleShape } = copyGeometry(spec, [rows, columns], direction, to);
  using scope = new Scope();
  const out = new Tensor(x.backend, scaleType, scaleShape);
  execute(x.backend, "relayout", { spec, direction, rows, columns, x, from, out, to });
  return scope.keep(out);
}
