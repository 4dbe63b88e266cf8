/** Permutations of dimensions, as exchanges of two dimensions at a time. */
import { ArgumentError, DTypeError } from "../../errors.js";
import { describe, ownList } from "../../options.js";
import { requireTensor } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { dimensionOf, elementCount, type Shape, storageBits } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { swapAxes } from "./layout.js";

/**
 * Returns x with its dimensions in the order `dims`, as a new row-major tensor: dimension i of the result is dimension `dims[i]`
 * of x. Negative dimensions count from the end. All dtypes of at least 8 bits are allowed.
 *
 * @throws `DTypeError` for FP4, whose codes share bytes, and for an argument that is not a tensor, `ArgumentError` unless `dims`
 * has each dimension of x once, `DisposedError` for a disposed tensor.
 */
export function permute<X extends Tensor>(x: X, dims: readonly number[]): Tensor<X["dtype"]> {
  const { shape, dtype } = requireTensor("permute", "x", x);
  if (storageBits(dtype) < 8)
    throw new DTypeError(`permute: x is ${dtype}, whose codes share bytes; decode it first`);
  const order = dimensionsOf(shape, dims);
  const groups = groupsOf(shape, order);
  using scope = new Scope();
  // `positions[i]` is the index in x of the group that is dimension i of `result`
  const positions = groups.map((_, i) => i).sort((i, j) => firstOf(groups, i) - firstOf(groups, j));
  const sizes = groups.map((group) => elementCount(group.map((dim) => shape[dim] as number)));
  let result: Tensor<X["dtype"]> = x.reshape(positions.map((i) => sizes[i] as number));
  for (let i = 0; i < positions.length; i++) {
    const j = positions.indexOf(i);
    if (i === j) continue;
    result = swapAxes(result, i, j);
    [positions[i], positions[j]] = [i, positions[i] as number];
  }
  if (result.address === x.address) result = swapAxes(x.reshape([1, x.size]), 0, 1);
  return scope.keep(result.reshape(order.map((dim) => shape[dim] as number)));
}

/**
 * Returns the dimensions counted from the front. Throws `ArgumentError` unless each dimension of `shape` is among them once.
 *
 * @shared
 */
export function dimensionsOf(shape: Shape, dims: readonly number[]): readonly number[] {
  const what = `an array of the ${shape.length} dimensions of x [${shape}], each once`;
  const order = ownList(
    "permute",
    "dims",
    dims,
    (dim, i) => dimensionOf("permute", `dims[${i}]`, shape, dim as number),
    what,
  );
  if (order.length === shape.length && new Set(order).size === order.length) return order;
  throw new ArgumentError(`permute: dims is ${describe(dims)}, [${order}]; it must be ${what}`);
}

/** Divides the dimensions, in the order of the result, into groups that are contiguous in x, without dimensions of size 1. */
function groupsOf(shape: Shape, order: readonly number[]): readonly (readonly number[])[] {
  const groups: number[][] = [];
  let previous = -1;
  const next = (dim: number): number => {
    let after = dim + 1;
    while (shape[after] === 1) after++;
    return after;
  };
  for (const dim of order) {
    if (shape[dim] === 1) continue;
    if (groups.length > 0 && next(previous) === dim) groups.at(-1)?.push(dim);
    else groups.push([dim]);
    previous = dim;
  }
  return groups;
}

const firstOf = (groups: readonly (readonly number[])[], i: number): number => groups[i]?.[0] as number;
