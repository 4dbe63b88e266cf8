/** Cumulative sums along a dimension. */
import { boolean, optionsOf } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { dimensionOf, type WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { compute } from "../execute.js";
import { alongLast } from "../layout/layout.js";

/** Options of `cumsum`. */
export interface CumsumOptions {
  /** Whether the sums begin at the last element. Default false. */
  readonly reverse?: boolean | undefined;
}

const checkOptions = optionsOf<CumsumOptions>({ reverse: boolean });

/**
 * Returns the cumulative sums of x along dimension `dim`, in the shape and dtype of x: element i is the sum of elements 0 to i
 * or, with `reverse`, of the last element down to i. Elements are added in f32 one after the other from +0, and each sum is
 * rounded once (numerics.md §7.19); `torch.cumsum` rounds each addition to the dtype. The gradient of x is `cumsum` of the
 * gradient in the other direction.
 *
 * @throws `DTypeError` for an x that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have and for an
 * invalid option, `DisposedError` for a disposed tensor.
 */
export function cumsum(x: Tensor, dim: number, options: CumsumOptions = {}): Tensor<WideDType> {
  const { reverse = false } = checkOptions("cumsum", options);
  const source = requireWide("cumsum", "x", x);
  const axis = dimensionOf("cumsum", "dim", x.shape, dim);
  return alongLast(axis, [source], (rows) => {
    const out = new Tensor(x.backend, rows.dtype, rows.shape);
    return compute("cumsum", { x: rows, reverse, out });
  });
}
