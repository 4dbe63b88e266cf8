/** Operations that rearrange elements without changing them. */
import { DTypeError, ShapeError } from "../../errors.js";
import { oneOf } from "../../options.js";
import { type CopyGeometry, copyGeometry } from "../../tensor/geometry.js";
import {
  DIRECTIONS,
  type Direction,
  type QuantizedTensor,
  requireQuantized,
  type ScaleLayout,
} from "../../tensor/quantized.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, dimensionOf, elementCount, storageBits } from "../../tensor/shape.js";
import { SCALE_LAYOUTS } from "../../tensor/spec.js";
import { Tensor } from "../../tensor/tensor.js";
import { compute, execute } from "../execute.js";

/**
 * Returns the transpose [K, M] of `x` [M, K]. Leading dimensions are flattened into M. All dtypes are allowed.
 *
 * @throws `DTypeError` for an argument that is not a tensor, `ShapeError` for FP4 codes with an odd number of rows,
 * `DisposedError` for a disposed tensor.
 */
export function transpose<X extends Tensor>(x: X): Tensor<X["dtype"]> {
  const { backend } = requireTensor("transpose", "x", x);
  const [rows, columns] = asMatrix(x.shape);
  if (storageBits(x.dtype) < 8 && rows % 2 !== 0) {
    throw new ShapeError(
      `transpose: FP4 codes share bytes and x has ${rows} rows, which become columns; pad to ${rows + 1}`,
    );
  }
  const out = new Tensor(backend, x.dtype, [columns, rows]);
  return compute("transpose", { x, out });
}

/**
 * Returns `x` with two axes exchanged, as a new row-major tensor. Negative axes count from the end. All dtypes of at least 8
 * bits are allowed.
 *
 * @throws `DTypeError` for FP4, whose codes share bytes, `ArgumentError` for an axis that x does not have.
 * @throws `DisposedError` for a disposed tensor.
 */
export function swapAxes<X extends Tensor>(x: X, axis1: number, axis2: number): Tensor<X["dtype"]> {
  const { backend } = requireTensor("swapAxes", "x", x);
  if (storageBits(x.dtype) < 8)
    throw new DTypeError(`swapAxes: x is ${x.dtype}, whose codes share bytes; transpose takes it`);
  const axes = [
    dimensionOf("swapAxes", "axis1", x.shape, axis1),
    dimensionOf("swapAxes", "axis2", x.shape, axis2),
  ] as const;
  const [low, high] = [Math.min(...axes), Math.max(...axes)];
  const { shape } = x;
  const [p, q] = [shape[low] as number, low === high ? 1 : (shape[high] as number)];
  const swapped = shape.map((size, axis) => {
    if (axis === low) return shape[high] as number;
    return axis === high ? p : size;
  });
  const between = (from: number, to?: number): number => elementCount(shape.slice(from, to));
  const out = new Tensor(backend, x.dtype, swapped);
  const sizes = [between(0, low), p, between(low + 1, high), q, between(high + 1)] as const;
  return compute("swapAxes", { x, sizes, out });
}

/**
 * Calls `run` with tensors whose dimension `axis` is exchanged with the last one, and exchanges the two dimensions of its result
 * back.
 *
 * @shared
 */
export function alongLast<T extends readonly [Tensor, ...Tensor[]], R extends Tensor>(
  axis: number,
  tensors: T,
  run: (...exchanged: T) => R,
): Tensor<R["dtype"]> {
  if (axis === tensors[0].shape.length - 1) return run(...tensors);
  using scope = new Scope();
  const exchanged = tensors.map((each) => swapAxes(each, axis, -1)) as readonly Tensor[] as T;
  return scope.keep(swapAxes(run(...exchanged), axis, -1));
}

const isDirection = oneOf(DIRECTIONS);
const isLayout = oneOf(SCALE_LAYOUTS);

/**
 * Returns the scales of one copy of `t` (rowwise or columnwise) in another scale layout, as a new tensor. Padding is zero.
 *
 * @throws `DTypeError` for an argument that is not a quantized tensor, `ArgumentError` for a copy that `t` does not have, or
 * for a layout that is unknown or that the format does not have, `DisposedError` for a disposed tensor.
 */
export function relayoutScales(t: QuantizedTensor, direction: Direction, to: ScaleLayout): Tensor {
  requireQuantized("relayoutScales", "t", t);
  isDirection("relayoutScales", "direction", direction);
  isLayout("relayoutScales", "to", to);
  const { scaleInv, geometry } = t.copy(direction);
  return relayout(scaleInv, geometry, copyGeometry(t.spec, asMatrix(t.shape), direction, to));
}

/** @shared Converts scales from the layout of `from` to the layout of `to`. */
export function relayout(x: Tensor, from: CopyGeometry, to: CopyGeometry): Tensor {
  using scope = new Scope();
  const out = new Tensor(x.backend, to.scaleType, to.scaleShape);
  execute(x.backend, "relayout", { x, from, out, to });
  return scope.keep(out);
}
