/** Embeddings: table rows by id, and the sums of their gradients in a fixed order. */
import { add } from "../core/rational.js";

type Row = readonly number[];

/** The range of ids in a table. */
export interface Ids {
  /** The id of the first row. Default 0. */
  readonly first?: number;
  /** The total number of ids. Default: the rows of the table. */
  readonly vocabulary?: number | undefined;
}

/** The table row of each id; -0 for ids whose row is in another part of the table, and NaN for invalid ids. */
export function embedding(
  table: readonly Row[],
  columns: number,
  ids: Row,
  { first = 0, vocabulary = first + table.length }: Ids = {},
): number[][] {
  return ids.map((id) => {
    const padding = id >= 0 && id < vocabulary ? -0 : Number.NaN;
    const row = id < first ? undefined : table[id - first];
    return Array.from({ length: columns }, (_, j) => (row ? row[j]! : padding));
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
    const tokenRows = grad.filter((_, position) => ids[position] === first + v);
    return Array.from({ length: columns }, (_, j) => tokenRows.reduce((sum, row) => add(sum, row[j]!), 0));
  });
}
