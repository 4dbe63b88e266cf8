/** The largest elements of rows. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { integer, optionsOf } from "../../options.js";
import { requireWide } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import { Tensor } from "../../tensor/tensor.js";
import { execute } from "../execute.js";

/** Options of `topk`. All fields are optional. */
export interface TopkOptions {
  /** The number of groups of neighbouring elements of a row, all of one size. Default: no groups. */
  readonly numGroups?: number | undefined;
  /**
   * The number of groups whose elements can be chosen: the groups with the largest sums of their k / groupTopk largest elements.
   * Default: all.
   */
  readonly groupTopk?: number | undefined;
}

/** The largest elements of rows, as `topk` returns them. */
export interface LargestElements {
  /** The indices of the elements of each row, the largest first, i32 [T, k]. */
  readonly indices: Tensor<"i32">;
  /** 1 for each of the largest elements, 0 for the others, i32 [T, E]. */
  readonly routingMap: Tensor<"i32">;
  /** `routingMap` as f32 [T, E]. */
  readonly mask: Tensor<"f32">;
}

/** The maximum number of elements of a row, whose indices are i32. */
const MAX_COLUMNS = 2 ** 31 - 1;
const count = integer(1, MAX_COLUMNS);
const checkOptions = optionsOf<TopkOptions>({ numGroups: count, groupTopk: count });

/**
 * Finds the k largest elements of each row of x [T, E]. Equal elements have the order of their indices, the lowest first; NaN
 * counts as -infinity, and -0 equals +0. With `groupTopk`, only elements of the best groups can be chosen (numerics.md §7.17).
 * The caller disposes of the three tensors.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` for one that is not a matrix, `ArgumentError` for
 * an invalid option value, a k that is not an integer from 1 to E, a number of groups that does not divide E, more chosen groups
 * than groups, or a `groupTopk` that does not divide k into at most a group's elements, `DisposedError` for a disposed tensor,
 * `OutOfMemoryError` if memory is not available.
 */
export function topk(x: Tensor, k: number, options: TopkOptions = {}): LargestElements {
  const source = requireWide("topk", "x", x);
  if (x.shape.length !== 2) throw new ShapeError(`topk: x is [${x.shape}]; it must be a matrix`);
  const [rows, columns] = x.shape as readonly [number, number];
  count("topk", "k", k);
  const ownOptions = checkOptions("topk", options);
  const { groups, groupTopk } = requireGroups("topk", { columns, k, ...ownOptions });
  const { backend } = x;
  using scope = new Scope();
  const indices = new Tensor(backend, "i32", [rows, k]);
  const routingMap = new Tensor(backend, "i32", x.shape);
  const mask = new Tensor(backend, "f32", x.shape);
  execute(backend, "topk", { x: source, groups, groupTopk, indices, routingMap, mask });
  for (const each of [indices, routingMap, mask]) scope.keep(each);
  return { indices, routingMap, mask };
}

/** @shared Returns the numbers of groups. Throws `ArgumentError` for numbers that do not fit rows of `columns` elements. */
export function requireGroups(
  caller: string,
  {
    columns,
    k,
    numGroups: groups = 1,
    groupTopk = groups,
  }: TopkOptions & { readonly columns: number; readonly k: number },
): { readonly groups: number; readonly groupTopk: number } {
  if (k > columns)
    throw new ArgumentError(`${caller}: k is ${k}, and a row has ${columns} elements; give at most these`);
  if (columns % groups !== 0)
    throw new ArgumentError(
      `${caller}: numGroups is ${groups}; it must divide ${columns}, the elements of a row`,
    );
  if (groupTopk > groups)
    throw new ArgumentError(
      `${caller}: groupTopk is ${groupTopk}; there are ${groups} groups, so give at most these`,
    );
  // all groups: nothing is left out, so k need not be divided among them
  if (groupTopk === groups) return { groups: 1, groupTopk: 1 };
  if (k % groupTopk !== 0 || k / groupTopk > columns / groups)
    throw new ArgumentError(
      `${caller}: groupTopk is ${groupTopk}; it must divide k, ${k}, into at most ${columns / groups}, the elements of a group`,
    );
  return { groups, groupTopk };
}
