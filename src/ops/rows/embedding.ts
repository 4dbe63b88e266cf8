/** Embedding lookup and its gradient. */
import { ArgumentError, ShapeError } from "../../errors.js";
import { integer, optionsOf } from "../../options.js";
import { requireI32, requireWide, wideDType } from "../../tensor/require.js";
import type { WideDType } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { commonBackend, compute, requireShape } from "../execute.js";

/** Options of `embeddingBackward`. All fields are optional. */
export interface EmbeddingBackwardOptions {
  /** The dtype of the result. Default: the dtype of the table or, for `embeddingBackward`, of the gradient. */
  readonly outDtype?: WideDType | undefined;
  /** The id of the table's first row. Default 0. */
  readonly first?: number | undefined;
}

/** Options of `embedding`. All fields are optional. */
export interface EmbeddingOptions extends EmbeddingBackwardOptions {
  /** The number of all ids, if the table is a part of a larger one. Default: the number of ids up to the table's last row. */
  readonly vocabulary?: number | undefined;
}

const BACKWARD = { outDtype: wideDType, first: integer(0, 2 ** 31 - 1) };
const checkBackward = optionsOf<EmbeddingBackwardOptions>(BACKWARD);
/** The number of all ids. */
const VOCABULARY = integer(0, 2 ** 31);
const checkOptions = optionsOf<EmbeddingOptions>({ ...BACKWARD, vocabulary: VOCABULARY });

/**
 * Returns the rows of `table` [V, D] whose indices are `ids`, an i32 tensor of any shape. The result is [...ids.shape, D],
 * rounded to `outDtype`. An index outside 0..V-1 gives a row of NaN.
 *
 * The table may be a part of a larger one, with the rows of the ids first..first+V-1. An id below `vocabulary` that belongs to
 * another part gives a row of −0, so the sum of the results of all parts is bitwise equal to the result of the full table.
 *
 * @throws `DTypeError` for a table that is not f32, bf16 or f16, or ids that are not i32, `ShapeError` for a table that is not
 * a matrix, `ArgumentError` for an invalid option value, a `vocabulary` that ends before the table, or tensors on different
 * backends, `DisposedError` for a disposed tensor.
 */
export function embedding(table: Tensor, ids: Tensor, options: EmbeddingOptions = {}): Tensor<WideDType> {
  const source = requireWide("embedding", "table", table);
  if (table.shape.length !== 2)
    throw new ShapeError(`embedding: table is [${table.shape}]; it must have a row for each id, [V, D]`);
  const numbers = requireI32("embedding", "ids", ids);
  const [rows, columns] = table.shape as readonly [number, number];
  const ownOptions = checkOptions("embedding", options);
  const { first = 0, vocabulary: vocabularySize = first + rows } = ownOptions;
  if (first + rows > vocabularySize)
    throw new ArgumentError(
      `embedding: the table has ids ${first} to ${first + rows - 1}, and vocabulary is ${vocabularySize}; give the number of all ids`,
    );
  const backend = commonBackend("embedding", table, ids);
  const shape = [...ids.shape, columns];
  const out = new Tensor(backend, ownOptions.outDtype ?? source.dtype, shape);
  return compute("embedding", { table: source, ids: numbers, first, whole: vocabularySize, out });
}

/**
 * Returns the gradient [V, D] of the table of an embedding, given the gradient `grad` [...ids.shape, D] of the result; V is
 * `vocabulary`. Row v is the sum of those rows of `grad` whose index is first + v. The sum starts at +0, adds in f32 in ascending
 * order, and is rounded once to `outDtype`. A row whose index does not occur is 0; indices without a row are ignored.
 *
 * @throws `DTypeError` for a gradient that is not f32, bf16 or f16, or ids that are not i32, `ShapeError` unless the gradient
 * has one row per index, `ArgumentError` for an invalid option value or tensors on different backends, `DisposedError` for a
 * disposed tensor.
 */
export function embeddingBackward(
  grad: Tensor,
  ids: Tensor,
  vocabulary: number,
  options: EmbeddingBackwardOptions = {},
): Tensor<WideDType> {
  const source = requireWide("embeddingBackward", "grad", grad);
  const numbers = requireI32("embeddingBackward", "ids", ids);
  const { first = 0, outDtype } = checkBackward("embeddingBackward", options);
  VOCABULARY("embeddingBackward", "vocabulary", vocabulary);
  const columns = grad.shape.at(-1) ?? 1;
  requireShape("embeddingBackward", "grad", grad, [...ids.shape, columns]);
  const backend = commonBackend("embeddingBackward", grad, ids);
  const out = new Tensor(backend, outDtype ?? source.dtype, [vocabulary, columns]);
  return compute("embeddingBackward", { grad: source, ids: numbers, first, out });
}
