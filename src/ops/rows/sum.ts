/** Sums and means over dimensions, as column sums of one dimension after the other. */
import { ArgumentError } from "../../errors.js";
import { boolean, integer, listOf, type OptionTable, optionsOf } from "../../options.js";
import { requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { around, dimensionOf, MAX_RANK, type Shape, type WideDType, withSize } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { castTo } from "../cast/cast.js";
import { scaled } from "../elementwise/operators.gen.js";
import { swapAxes } from "../layout/layout.js";
import { columnSum } from "./norm.js";

/** Options of functions that sum over dimensions. All fields are optional. */
export interface SumDimensions {
  /** The dimension, or several, over which to sum; negative ones count from the end. Default: all dimensions. */
  readonly dim?: number | readonly number[] | undefined;
  /** Whether the result keeps the summed dimensions, with size 1. Default false. */
  readonly keepdim?: boolean | undefined;
}

/** Options of `sum` and `mean`. All fields are optional. */
export interface SumOptions extends SumDimensions {
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

const one = integer(-MAX_RANK, MAX_RANK - 1);
const several = listOf(one);

/** @shared The checks of the fields of `SumDimensions`. */
export const SUM_DIMENSIONS: OptionTable<SumDimensions> = {
  dim: (caller, name, value) => (typeof value === "number" ? one : several)(caller, name, value),
  keepdim: boolean,
};

const checkOptions = optionsOf<SumOptions>({ ...SUM_DIMENSIONS, outDtype: wideDType });

/**
 * Returns the sums of x over the dimensions `dim`, in f32, rounded once to `outDtype`. Dimensions are summed one after the other,
 * the last one first, each in the order of `columnSum` (numerics.md §7.13). The sum over no elements is +0.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, one that
 * is listed twice, an empty list, or an invalid option value, `DisposedError` for a disposed tensor.
 */
export function sum(x: Tensor, options: SumOptions = {}): Tensor<WideDType> {
  const source = requireWide("sum", "x", x);
  const { outDtype = source.dtype, ...rest } = checkOptions("sum", options);
  using scope = new Scope();
  const { keptShape, shape, axes } = summed("sum", source.shape, rest);
  return scope.keep(castTo(totals(source, axes), outDtype).reshape(rest.keepdim ? keptShape : shape));
}

/**
 * Returns the means of x over the dimensions `dim`: the f32 sums of `sum` times 1 / n, which is rounded to f32, rounded once to
 * `outDtype`, where n is the number of elements of a sum. The mean of no elements is NaN.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ArgumentError` for a dimension that x does not have, one that
 * is listed twice, an empty list, or an invalid option value, `DisposedError` for a disposed tensor.
 */
export function mean(x: Tensor, options: SumOptions = {}): Tensor<WideDType> {
  const source = requireWide("mean", "x", x);
  const { outDtype = source.dtype, ...rest } = checkOptions("mean", options);
  using scope = new Scope();
  const { keptShape, shape, axes, count } = summed("mean", source.shape, rest);
  const result = scaled(totals(source, axes), 1 / count, { outDtype });
  return scope.keep(result.reshape(rest.keepdim ? keptShape : shape));
}

/**
 * Returns the shapes of a sum with and without the summed dimensions, these dimensions in ascending order, and the number of
 * elements of each sum. Throws `ArgumentError` for invalid dimensions.
 *
 * @shared
 */
export function summed(op: string, shape: Shape, { dim }: SumDimensions) {
  const listed = dim === undefined ? [...shape.keys()] : typeof dim === "number" ? [dim] : dim;
  const axes = listed.map((each, i) =>
    dimensionOf(op, typeof dim === "number" ? "dim" : `dim[${i}]`, shape, each),
  );
  if (new Set(axes).size < axes.length)
    throw new ArgumentError(`${op}: dim is [${listed}], which lists a dimension of [${shape}] twice`);
  return {
    axes: axes.sort((a, b) => a - b),
    keptShape: shape.map((size, axis) => (axes.includes(axis) ? 1 : size)),
    shape: shape.filter((_, axis) => !axes.includes(axis)),
    count: axes.reduce((product, axis) => product * (shape[axis] as number), 1),
  };
}

/** Sums the dimensions `axes`, the last one first, in f32. The open scope owns the result, which keeps the dimensions. */
function totals(x: Tensor<WideDType>, axes: readonly number[]): Tensor<WideDType> {
  // a scalar is summed too, because a sum starts at +0
  if (axes.length === 0) return columnSum(x, "f32").reshape(x.shape);
  let result = x;
  for (const axis of [...axes].reverse()) {
    const { outer, length, inner } = around(result.shape, axis);
    const rows = outer === 1 ? result : swapAxes(result.reshape([outer, length, inner]), 0, 1);
    const sums = columnSum(rows.reshape([length, outer * inner]), "f32");
    result = sums.reshape(withSize(result.shape, axis, 1));
  }
  return result;
}
