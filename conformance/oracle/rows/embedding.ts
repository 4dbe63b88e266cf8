/** Embeddings: rows by index, and the sums of their gradients in a fixed order. */
import { add } from "../core/rational.js";

type Row = readonly number[];

/** Which ids the rows of a table have. */
export interface Ids {
  /** That of the first row. Default 0. */
  readonly first?: number;
  /** The number of all ids. Default: those of the table. */
  readonly vocabulary?: number | undefined;
}

/** The row of each id; -0 for ids that have a row elsewhere, and NaN for what is no id. */
export function embedding(
  table: readonly Row[],
  columns: number,
  ids: Row,
  { first = 0, vocabulary = first + table.length }: Ids = {},
): number[][] {
  return ids.map((id) => {
    const missing = id >= 0 && id < vocabulary ? -0 : Number.NaN;
    const row = id < first ? undefined : table[id - first];
    return Array.from({ length: columns }, (_, j) => (row ? row[j]! : missing));
  });
}

/**
 * For each row of the table, the f32 sum of the gradients of all positions with its id, in order. Not yet rounded to a
 * type.
 */
export function embeddingBackward(
  grad: readonly Row[],
  columns: number,
  ids: Row,
  vocabulary: number,
  first = 0,
): number[][] {
  return Array.from({ length: vocabulary }, (_, v) => {
    const mine = grad.filter((_, position) => ids[position] === first + v);
    return Array.from({ length: columns }, (_, j) => mine.reduce((sum, row) => add(sum, row[j]!), 0));
  });
}
