/** Elements of rows by index, and the sums of their gradients. */
import { add } from "../core/rational.js";

type Row = readonly number[];

/** The elements of each row at its indices; NaN for an index that the row does not have. */
export function gather(x: readonly Row[], ids: readonly Row[]): number[][] {
  return ids.map((row, r) => row.map((id) => x[r]?.[id] ?? Number.NaN));
}

/** For each element of a row, the f32 sum of the gradients of all results with its index, in order. */
export function gatherBackward(grad: readonly Row[], ids: readonly Row[], columns: number): number[][] {
  return ids.map((row, r) =>
    Array.from({ length: columns }, (_, column) =>
      row.reduce((sum, id, j) => (id === column ? add(sum, grad[r]![j]!) : sum), 0),
    ),
  );
}
