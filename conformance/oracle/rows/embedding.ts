/** Embeddings: rows by index, and the sums of their gradients in a fixed order. */
import { add } from "../core/rational.js";

type Row = readonly number[];

/** The row of each id; NaN for ids outside of the table. */
export function embedding(table: readonly Row[], columns: number, ids: Row): number[][] {
  return ids.map((id) => Array.from({ length: columns }, (_, j) => (table[id] ? table[id][j]! : Number.NaN)));
}

/**
 * For each row of the table, the f32 sum of the gradients of all positions with that id, in order. Not yet rounded to a
 * type.
 */
export function embeddingBackward(
  grad: readonly Row[],
  columns: number,
  ids: Row,
  vocabulary: number,
): number[][] {
  return Array.from({ length: vocabulary }, (_, v) => {
    const mine = grad.filter((_, position) => ids[position] === v);
    return Array.from({ length: columns }, (_, j) => mine.reduce((sum, row) => add(sum, row[j]!), 0));
  });
}
