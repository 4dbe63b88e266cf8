/** Embedding lookup and its gradient. */
import { ShapeError } from "../../errors.js";
import { optionsOf } from "../../options.js";
import { requireI32, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** Options of `embedding` and `embeddingBackward`. */
export interface EmbeddingOptions {
  /** The dtype of the result. Default: the dtype of the table or, for `embeddingBackward`, of the gradient. */
  readonly outDtype?: WideDType | undefined;
}

const checkOptions = optionsOf<EmbeddingOptions>({ outDtype: wideDType });

/**
 * Returns the rows of `table` [V, D] whose indices are `ids`, an i32 tensor of any shape. The result is [...ids.shape, D],
 * rounded to `outDtype`. An index outside 0..V-1 gives a row of NaN.
 *
 * @throws `DTypeError` for a table that is not f32, bf16 or f16, or ids that are not i32, `ShapeError` for a table that is not
 * a matrix, `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a disposed
 * tensor.
 */
export function embedding(table: Tensor, ids: Tensor, options: EmbeddingOptions = {}): Tensor<WideDType> {
  const source = requireWide("embedding", "table", table);
  if (table.shape.length !== 2)
    throw new ShapeError(`embedding: table is [${table.shape}]; it must have a row for each id, [V, D]`);
  const numbers = requireI32("embedding", "ids", ids);
  checkOptions("embedding", options);
  using scope = new Scope();
  const backend = commonBackend("embedding", table, ids);
  const shape = [...ids.shape, table.shape[1] as number];
  const out = new Tensor(backend, options.outDtype ?? source.dtype, shape);
  execute(backend, "embedding", { table: source, ids: numbers, out });
  return scope.keep(out);
}

/**
 * Returns the gradient [V, D] of the table of an embedding, given the gradient `grad` [...ids.shape, D] of the result; V is
 * `vocabulary`. Row v is the sum of those rows of `grad` whose index is v. The sum starts at +0, adds in f32 in ascending
 * order, and is rounded once to `outDtype`. A row whose index does not occur is 0; indices outside 0..V-1 are ignored.
 *
 * @throws `DTypeError` for a gradient that is not f32, bf16 or f16, or ids that are not i32, `ShapeError` unless the gradient
 * has one row per index, `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a
 * disposed tensor.
 */
export function embeddingBackward(
  grad: Tensor,
  ids: Tensor,
  vocabulary: number,
  options: EmbeddingOptions = {},
): Tensor<WideDType> {
  const source = requireWide("embeddingBackward", "grad", grad);
  const numbers = requireI32("embeddingBackward", "ids", ids);
  checkOptions("embeddingBackward", options);
  const columns = grad.shape.at(-1) ?? 1;
  requireShape("embeddingBackward", "grad", grad, [...ids.shape, columns]);
  using scope = new Scope();
  const backend = commonBackend("embeddingBackward", grad, ids);
  const out = new Tensor(backend, options.outDtype ?? source.dtype, [vocabulary, columns]);
  execute(backend, "embeddingBackward", { grad: source, ids: numbers, out });
  return scope.keep(out);
}
