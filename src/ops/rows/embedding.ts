/** Embeddings, and their gradients. */
import { ShapeError } from "../../errors.js";
import { optionsOf } from "../../options.js";
import { requireI32, requireWide, wideDType } from "../../tensor/require.js";
import { Scope } from "../../tensor/scope.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, execute, requireShape } from "../execute.js";

/** The type of the result of `embedding` or `embeddingBackward`. */
export interface EmbeddingOptions {
  /** Default: the type of the table, or of the gradient. */
  readonly outDtype?: WideDType | undefined;
}

const checkOptions = optionsOf<EmbeddingOptions>({ outDtype: wideDType });

/**
 * The rows of `table` [V, D] selected by `ids`, i32 of any shape: [...ids.shape, D], rounded to `outDtype`. An id outside
 * 0..V-1 gives a row of NaN.
 *
 * @throws `DTypeError` for a table that is not wide or ids that are not i32, `ShapeError` for a table that is not a matrix,
 * `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that was
 * disposed of.
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
 * The gradient [V, D] of a table of V = `vocabulary` rows from the gradient of its embedding, `grad` [...ids.shape, D]. Row v
 * is the sum of the rows whose id is v, in ascending order from +0 in f32, rounded once to `outDtype`. Rows without an id are
 * 0; ids outside 0..V-1 are ignored.
 *
 * @throws `DTypeError` for a gradient that is not wide or ids that are not i32, `ShapeError` unless the gradient has one row
 * per id, `ArgumentError` for an option outside its domain or tensors on different backends, `DisposedError` for a tensor that
 * was disposed of.
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
