/** Collective operations: the result on each rank from the inputs of all ranks, written from the specification only. */
import { add } from "../core/rational.js";

/** Rounds an f32 value to the element type of the inputs. */
export type Round = (x: number) => number;

/** The elementwise sum in order of ranks, from rank 0. Partial sums are f32; only the last one is rounded. */
export function rankedSum(inputs: readonly ArrayLike<number>[], round: Round): number[] {
  const [first = [], ...addends] = inputs;
  return Array.from(first, (value, i) =>
    round(addends.reduce((total, part) => add(total, part[i] as number), value)),
  );
}

/** The mean over `ranks` ranks of already rounded sums: the f32 product with f32(1 / ranks), rounded. */
export function meanOfSums(sums: readonly number[], ranks: number, round: Round): number[] {
  return sums.map((value) => round(Math.fround(value * Math.fround(1 / ranks))));
}

/**
 * The sum along a ring of ranks, rounded after every hop. The elements that `splits` assigns to rank d are summed from rank d + 1
 * around the ring to rank d.
 */
export function ringSum(
  inputs: readonly ArrayLike<number>[],
  order: readonly number[],
  splits: readonly number[],
  round: Round,
): number[] {
  const nextRank = new Map(order.map((rank, i) => [rank, order[(i + 1) % order.length] as number]));
  const successor = (rank: number): number => nextRank.get(rank) as number;
  const elementAt = (rank: number, i: number): number => (inputs[rank] as ArrayLike<number>)[i] as number;
  const out: number[] = [];
  for (const [owner, count] of splits.entries()) {
    for (let end = out.length + count; out.length < end; ) {
      const i = out.length;
      let holder = successor(owner);
      let total = elementAt(holder, i);
      while (holder !== owner) {
        holder = successor(holder);
        total = round(add(total, elementAt(holder, i)));
      }
      out.push(total);
    }
  }
  return out;
}

/** The elementwise maximum. It is NaN only if all elements are NaN, and +0 is larger than -0. */
export function maximum(inputs: readonly ArrayLike<number>[]): number[] {
  const larger = (a: number, b: number): number => {
    if (Number.isNaN(a)) return b;
    if (Number.isNaN(b)) return a;
    if (a === b) return Object.is(a, -0) ? b : a;
    return Math.max(a, b);
  };
  const [first = []] = inputs;
  return Array.from(first, (_, i) => inputs.map((part) => part[i] as number).reduce(larger));
}
