/** The sum of two tensors. */

import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute, type ResultOptions, requireShape, resultFor } from "../execute.js";

/** Options of `add`. */
export type AddOptions = ResultOptions;

/**
 * x + y, element by element: one f32 addition, rounded once to `outDtype`, where overflow gives infinity (numerics.md §7.10). x
 * and y have one shape and may have different wide types. `out`, if given, must have that shape and type, and is returned; it
 * may share memory with x or y only by being one of them.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for addends or an `out` of another shape,
 * `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was
 * disposed of.
 */
export function add(x: Tensor, y: Tensor, options: AddOptions = {}): Tensor<WideDType> {
  const [left, right] = [requireWide("add", "x", x), requireWide("add", "y", y)];
  requireShape("add", "y", y, x.shape);
  using scope = new Scope();
  const out = resultFor("add", [left, right], options);
  execute(out.backend, "add", { x: left, y: right, out });
  return scope.keep(out);
}
