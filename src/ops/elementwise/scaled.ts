/** Multiplication of a tensor by a number. */

import { anyNumber } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { execute, type ResultOptions, resultFor } from "../execute.js";

/** Options of `scaled`. */
export type ScaledOptions = ResultOptions;

/**
 * Computes x * factor for each element. `factor` is rounded to f32; the product is one f32 multiplication, rounded once to
 * `outDtype`, with overflow to infinity (numerics.md §7.11). x is f32, bf16 or f16. NaN and infinities propagate as in IEEE 754
 * multiplication. `out`, if given, receives the result and is returned. `out` may be x itself, but must not overlap it
 * otherwise.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` if `out` does not have the shape of x,
 * `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed tensor.
 */
export function scaled(x: Tensor, factor: number, options: ScaledOptions = {}): Tensor<WideDType> {
  const source = requireWide("scaled", "x", x);
  anyNumber("scaled", "factor", factor);
  using scope = new Scope();
  const out = resultFor("scaled", [source], options);
  execute(out.backend, "scaled", { x: source, factor: Math.fround(factor), out });
  return scope.keep(out);
}
