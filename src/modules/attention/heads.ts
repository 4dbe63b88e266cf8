/** How the result of a projection is divided into the heads of queries, keys and values. */
import { reshape, split } from "../../functional/layout.js";
import type { Variable } from "../../tape/variable.js";
import type { HeadCounts } from "./options.js";

/** The heads in the result of a projection: the kinds of tensors, and the number of heads of each in a group. */
export interface HeadPacking {
  readonly counts: HeadCounts;
  readonly width: number;
  /** Whether the heads of one group are together. Otherwise all queries come first, then all keys, then all values. */
  readonly interleaved: boolean;
}

/**
 * Divides the last dimension of x into tensors [..., heads, width]. Each group has `shares[i]` heads of tensor i. The tensors are
 * queries, keys and values, or some of these.
 */
export function unpack(
  x: Variable,
  { counts: { groups }, width, interleaved }: HeadPacking,
  shares: readonly number[],
): readonly Variable[] {
  const outer = x.shape.slice(0, -1);
  const total = shares.reduce((sum, share) => sum + share, 0);
  const parts = interleaved ? reshape(x, [...outer, groups, total * width]) : x;
  const size = interleaved ? width : groups * width;
  const sizes = shares.map((share) => share * size);
  return split(parts, sizes, -1).map((part, i) =>
    reshape(part, [...outer, (shares[i] as number) * groups, width]),
  );
}
