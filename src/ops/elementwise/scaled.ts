/** A tensor times a number. */

import { anyNumber } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute, type ResultOptions, resultFor } from "../execute.js";

/** Options of `scaled`. */
export type ScaledOptions = ResultOptions;

/**
 * x * factor, element by element: `factor` rounded to f32, one f32 multiplication, rounded once to `outDtype`, where overflow
 * gives infinity (numerics.md §7.11). Any wide type and any factor; NaN and infinities propagate as in a product. `out`, if
 * given, must have the shape of x, and is returned; it may share memory with x only by being x.
 *
 * @throws `DTypeError` for a tensor that is not of a wide type, `ShapeError` for an `out` of another shape, `ArgumentError` for
 * an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was disposed of.
 */
export function scaled(x: Tensor, factor: number, options: ScaledOptions = {}): Tensor<WideDType> {
  const source = requireWide("scaled", "x", x);
  anyNumber("scaled", "factor", factor);
  using scope = new Scope();
  const out = resultFor("scaled", [source], options);
  execute(out.backend, "scaled", { x: source, factor: Math.fround(factor), out });
  return scope.keep(out);
}
