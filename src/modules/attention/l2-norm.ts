/** The norm of heads without parameters. */
import { add, cast, multiply, rsqrt } from "../../functional/elementwise.js";
import { sum } from "../../functional/sum.js";
import { tensor } from "../../ops/create.js";
import type { Variable } from "../../tape/variable.js";

/**
 * Returns x / sqrt(sum of x^2 + eps) over the last dimension, in the dtype of x, as TransformerEngine's `L2Normalization`. The
 * squares, their sum and the factor are f32; the product is rounded once (numerics.md §10.8).
 */
export function l2Normalize(x: Variable, eps: number): Variable {
  const wide = cast(x, "f32");
  const squares = sum(multiply(wide, wide), { dim: -1, keepdim: true });
  const factor = rsqrt(add(squares, tensor(x.backend, Float32Array.of(eps), [1])));
  return multiply(x, factor);
}
