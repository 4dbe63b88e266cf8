/** Cumulative sums of a row, in f32 additions that are rounded one by one. */
import { add } from "../core/rational.js";

/** The sums of the elements up to each one or, reversed, from the last one down to each one. */
export function cumsum(row: readonly number[], reverse: boolean): number[] {
  if (reverse) return cumsum(row.toReversed(), false).toReversed();
  let sum = 0;
  return row.map((x) => {
    sum = add(sum, x);
    return sum;
  });
}
