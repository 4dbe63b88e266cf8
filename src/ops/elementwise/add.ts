/** Addition of two tensors. */

import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute, type ResultOptions, requireShape, resultFor } from "../execute.js";

/** Options of `add`. */
export type AddOptions = ResultOptions;

/**
 * Computes x + y for each element: one f32 addition, rounded once to `outDtype`, with overflow to infinity (numerics.md §7.10).
 * x and y have the same shape; each is f32, bf16 or f16. `out`, if given, receives the result and is returned. `out` may be x
 * or y itself, but must not overlap them otherwise.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` if y or `out` does not have the shape of x,
 * `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function add(x: Tensor, y: Tensor, options: AddOptions = {}): Tensor<WideDType> {
  const [left, right] = [requireWide("add", "x", x), requireWide("add", "y", y)];
  requireShape("add", "y", y, x.shape);
  using scope = new Scope();
  const out = resultFor("add", [left, right], options);
  execute(out.backend, "add", { x: left, y: right, out });
  return scope.keep(out);
}
