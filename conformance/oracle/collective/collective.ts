/** Operations of a group of ranks, from the parts of all of them: what each rank gets, by the specification alone. */
import { add } from "../core/rational.js";

/** Rounds an f32 value to the type of the parts. */
export type Round = (x: number) => number;

/** Parts added from rank 0 on, each sum an f32, the last one rounded. */
export function rankedSum(parts: readonly ArrayLike<number>[], round: Round): number[] {
  const [first = [], ...others] = parts;
  return Array.from(first, (value, i) =>
    round(others.reduce((total, part) => add(total, part[i] as number), value)),
  );
}

/**
 * Parts added hop by hop along a ring, each sum rounded. The elements that `splits` gives to rank d begin at the rank behind it
 * on the ring and end at d.
 */
export function ringSum(
  parts: readonly ArrayLike<number>[],
  order: readonly number[],
  splits: readonly number[],
  round: Round,
): number[] {
  const behind = new Map(order.map((rank, i) => [rank, order[(i + 1) % order.length] as number]));
  const after = (rank: number): number => behind.get(rank) as number;
  const at = (rank: number, i: number): number => (parts[rank] as ArrayLike<number>)[i] as number;
  const out: number[] = [];
  for (const [owner, count] of splits.entries()) {
    for (let end = out.length + count; out.length < end; ) {
      const i = out.length;
      let holder = after(owner);
      let total = at(holder, i);
      while (holder !== owner) {
        holder = after(holder);
        total = round(add(total, at(holder, i)));
      }
      out.push(total);
    }
  }
  return out;
}

/** The largest of each element: NaN only where all are, and +0 before -0. */
export function maximum(parts: readonly ArrayLike<number>[]): number[] {
  const larger = (a: number, b: number): number => {
    if (Number.isNaN(a)) return b;
    if (Number.isNaN(b)) return a;
    if (a === b) return Object.is(a, -0) ? b : a;
    return Math.max(a, b);
  };
  const [first = []] = parts;
  return Array.from(first, (_, i) => parts.map((part) => part[i] as number).reduce(larger));
}
