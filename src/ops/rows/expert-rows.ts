/** Rows of tokens that are sorted by their experts, and sums of such rows. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { integer, needed, optionsOf } from "../../options.js";
import { optional, requireI32, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, execute, requireShape } from "../execute.js";

/** Options of `rowIdMap`. */
export interface RowIdMapOptions {
  /** N, the number of rows. Entries whose row would be N or more get no row, and rows without an entry are padding. */
  readonly numOutTokens: number;
  /**
   * The number of experts, if entries are indices of experts. Otherwise entry (t, e) is nonzero if token t is routed to expert e,
   * and the columns of the map are the experts.
   */
  readonly numExperts?: number | undefined;
  /** The rows of each expert are padded to a multiple of this number. Default 1. */
  readonly alignSize?: number | undefined;
}

/** The rows of a routing map's entries, as `rowIdMap` returns them. */
export interface RowIdMap {
  /** The row of each entry of the routing map, i32 [T, C]; -1 for an entry without a row. */
  readonly rows: Tensor<"i32">;
  /** The entry t * C + c of each row, i32 [N]; -1 for a row of padding. */
  readonly sources: Tensor<"i32">;
  /** The number of rows of each expert, padding included, i32 [E]. */
  readonly tokensPerExpert: Tensor<"i32">;
}

/** The maximum number of rows and of entries, whose indices are i32. */
const MAX_ROWS = 2 ** 31 - 1;
const checkMapOptions = optionsOf<RowIdMapOptions>({
  numOutTokens: needed(integer(0, MAX_ROWS)),
  numExperts: integer(0, MAX_ROWS),
  alignSize: integer(1, MAX_ROWS),
});

/**
 * Assigns a row to each entry of `routingMap`, an i32 tensor [T, C], that names an expert: first the entries of expert 0, in
 * ascending order, then those of expert 1, and so on (numerics.md §7.16). An index outside 0 to E - 1 names no expert. The caller
 * disposes of the three tensors.
 *
 * @throws `DTypeError` for a map that is not i32, `ShapeError` for a map that is not a matrix, `ArgumentError` for an invalid
 * option, or a map of 2^31 or more entries, `DisposedError` for a disposed tensor, `OutOfMemoryError` if memory is not available.
 */
export function rowIdMap(routingMap: Tensor, options: RowIdMapOptions): RowIdMap {
  const map = requireI32("rowIdMap", "routingMap", routingMap);
  const { numOutTokens, numExperts, alignSize = 1 } = checkMapOptions("rowIdMap", options);
  const width = requireMatrix("rowIdMap", "routingMap", map)[1];
  if (map.size > MAX_ROWS)
    throw new ArgumentError(
      `rowIdMap: routingMap has ${map.size} entries, whose indices are i32; give at most ${MAX_ROWS}`,
    );
  const { backend } = map;
  using scope = new Scope();
  const rows = new Tensor(backend, "i32", map.shape);
  const sources = new Tensor(backend, "i32", [numOutTokens]);
  const tokensPerExpert = new Tensor(backend, "i32", [numExperts ?? width]);
  execute(backend, "rowIdMap", {
    ...{ routingMap: map, indices: numExperts !== undefined, align: alignSize },
    ...{ rows, sources, tokensPerExpert },
  });
  for (const each of [rows, sources, tokensPerExpert]) scope.keep(each);
  return { rows, sources, tokensPerExpert };
}

/** Options of `takeRows`. All fields are optional. */
export interface TakeRowsOptions {
  /** The number of entries of each row of x: index i selects row floor(i / entriesPerRow). Default 1. */
  readonly entriesPerRow?: number | undefined;
  /** The factors, one element for each entry. Default: rows are copied. */
  readonly weights?: Tensor | undefined;
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

const checkTakeOptions = optionsOf<TakeRowsOptions>({
  entriesPerRow: integer(1, MAX_ROWS),
  weights: requireWide,
  outDtype: wideDType,
});

/**
 * Returns the rows [N, D] of x [R, D] that `sources`, an i32 tensor [N], selects: row floor(i / entriesPerRow) for index i, times
 * element i of `weights` if that is given, in f32 and rounded once to `outDtype`. An index outside 0 to R * entriesPerRow - 1,
 * such as -1, gives a row of +0 (numerics.md §7.16). `embedding` gives NaN for such an index.
 *
 * @throws `DTypeError` for an x or weights that are not f32, bf16 or f16, or sources that are not i32, `ShapeError` unless x is a
 * matrix, sources a vector, and weights have R * entriesPerRow elements, `ArgumentError` for an invalid option value or tensors
 * on different backends, `DisposedError` for a disposed tensor.
 */
export function takeRows(x: Tensor, sources: Tensor, options: TakeRowsOptions = {}): Tensor<WideDType> {
  const source = requireWide("takeRows", "x", x);
  const ids = requireI32("takeRows", "sources", sources);
  const ownOptions = checkTakeOptions("takeRows", options);
  const { entriesPerRow: period = 1 } = ownOptions;
  const weights = optional(requireWide)("takeRows", "weights", ownOptions.weights);
  const [rows, columns] = requireMatrix("takeRows", "x", x);
  requireShape("takeRows", "sources", ids, [ids.size]);
  if (weights && weights.size !== rows * period)
    throw new ShapeError(
      `takeRows: weights is [${weights.shape}]; it must have an element for each of ${rows} * ${period} entries of x`,
    );
  const backend = commonBackend("takeRows", x, sources, weights);
  const out = new Tensor(backend, ownOptions.outDtype ?? source.dtype, [ids.size, columns]);
  return compute("takeRows", { x: source, sources: ids, period, weights, out });
}

/** Options of `combineRows`. All fields are optional. */
export interface CombineRowsOptions {
  /** The factor of each entry, in the shape of `rows`. Default: rows are added as they are. */
  readonly weights?: Tensor | undefined;
  /** The dtype of the result. Default: the dtype of x. */
  readonly outDtype?: WideDType | undefined;
}

const checkCombineOptions = optionsOf<CombineRowsOptions>({ weights: requireWide, outDtype: wideDType });

/**
 * Returns [T, D] with row t = the sum over c, in ascending order, of row rows[t, c] of x [N, D], each times weights[t, c] if they
 * are given. `rows` is an i32 tensor [T, C]; entries outside 0 to N - 1, such as -1, are ignored. The sum starts at +0, each
 * product and each sum is rounded to f32, and the result is rounded once to `outDtype` (numerics.md §7.16).
 *
 * @throws `DTypeError` for an x or weights that are not f32, bf16 or f16, or rows that are not i32, `ShapeError` unless x and
 * rows are matrices and weights have the shape of rows, `ArgumentError` for an invalid option value or tensors on different
 * backends, `DisposedError` for a disposed tensor.
 */
export function combineRows(x: Tensor, rows: Tensor, options: CombineRowsOptions = {}): Tensor<WideDType> {
  const source = requireWide("combineRows", "x", x);
  const ids = requireI32("combineRows", "rows", rows);
  const ownOptions = checkCombineOptions("combineRows", options);
  const weights = optional(requireWide)("combineRows", "weights", ownOptions.weights);
  const [, columns] = requireMatrix("combineRows", "x", x);
  const [tokens] = requireMatrix("combineRows", "rows", rows);
  if (weights) requireShape("combineRows", "weights", weights, rows.shape);
  const backend = commonBackend("combineRows", x, rows, weights);
  const out = new Tensor(backend, ownOptions.outDtype ?? source.dtype, [tokens, columns]);
  return compute("combineRows", { x: source, rows: ids, weights, out });
}

/** Options of `rowDots`. All fields are optional. */
export interface RowDotsOptions {
  /** The dtype of the result. Default: the dtype of grad. */
  readonly outDtype?: WideDType | undefined;
}

const checkDotsOptions = optionsOf<RowDotsOptions>({ outDtype: wideDType });

/**
 * Returns [T, C] with element (t, c) = the dot product of row t of `grad` [T, D] and row rows[t, c] of x [N, D], which is the
 * gradient of the weights of `combineRows`. `rows` is an i32 tensor [T, C]; an entry outside 0 to N - 1 gives +0. Products are
 * rounded to f32 and added in the order of row sums (numerics.md §7.5); the result is rounded once to `outDtype`.
 *
 * @throws `DTypeError` for tensors that are not f32, bf16 or f16, or rows that are not i32, `ShapeError` for tensors that are not
 * matrices, or whose sizes differ, `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError`
 * for a disposed tensor.
 */
export function rowDots(
  grad: Tensor,
  x: Tensor,
  rows: Tensor,
  options: RowDotsOptions = {},
): Tensor<WideDType> {
  const gradOutput = requireWide("rowDots", "grad", grad);
  const source = requireWide("rowDots", "x", x);
  const ids = requireI32("rowDots", "rows", rows);
  const { outDtype = gradOutput.dtype } = checkDotsOptions("rowDots", options);
  const [, columns] = requireMatrix("rowDots", "x", x);
  const [tokens] = requireMatrix("rowDots", "rows", rows);
  requireShape("rowDots", "grad", grad, [tokens, columns]);
  const backend = commonBackend("rowDots", grad, x, rows);
  const out = new Tensor(backend, outDtype, rows.shape);
  return compute("rowDots", { grad: gradOutput, x: source, rows: ids, out });
}

/** Returns the sizes of a matrix. Throws `ShapeError` for a tensor of another rank. */
function requireMatrix(
  op: string,
  name: string,
  { shape }: Tensor,
): readonly [rows: number, columns: number] {
  if (shape.length !== 2) throw new ShapeError(`${op}: ${name} is [${shape}]; it must be a matrix`);
  return shape as readonly [number, number];
}
