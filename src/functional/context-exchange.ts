/** The exchange of positions between the ranks of context parallelism. */
import type { ProcessGroup } from "../collectives/group.js";
import { empty } from "../ops/create.js";
import { elementCount } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Which positions a rank collects, and how. */
export interface Collecting {
  readonly group: ProcessGroup;
  /** The ranks whose positions are collected, of which this rank is always one. */
  readonly from: "lower" | "higher" | "all";
  /** Whether each rank passes on what it receives, from neighbour to neighbour. Otherwise all ranks gather everything. */
  readonly around: boolean;
}

/** Returns the tensors [S, ...] of the ranks, concatenated in ascending order. All ranks have tensors of the same shapes. */
export function collectPositions(tensors: readonly Tensor[], how: Collecting): readonly Tensor[] {
  const { group, from, around } = how;
  // ranks with another mask collect other positions; the group compares this description
  const subject = from === "all" ? "positions of all ranks" : "positions under the causal mask";
  return group.withSubject(subject, () => (around ? passed(tensors, how) : gathered(tensors, how)));
}

function gathered(tensors: readonly Tensor[], { group, from }: Collecting): readonly Tensor[] {
  const all = group.allGatherCoalesced(tensors.map((x) => ({ x })));
  if (from === "all") return all;
  const { rank, size } = group;
  const [first, last] = from === "lower" ? [0, rank + 1] : [rank, size];
  return all.map((x, i) => {
    const [positions = 0, ...rest] = tensors[i]?.shape ?? [];
    return x.slice(first * positions * elementCount(rest), [(last - first) * positions, ...rest]);
  });
}

/** The tensors of one rank. */
type Part = readonly Tensor[];

/**
 * Passes parts from rank to rank: upwards, or downwards for the positions of higher ranks. In a step a rank sends the part that
 * it received last to one neighbour, and receives the next part from the other. Of two neighbours, one sends first.
 */
function passed(tensors: Part, { group, from }: Collecting): readonly Tensor[] {
  const { rank, size } = group;
  const up = from === "higher" ? -1 : 1;
  const wraps = from === "all";
  /** Returns the rank at a distance in this direction, or undefined if there is none. */
  const at = (distance: number): number | undefined => {
    const other = rank + up * distance;
    if (wraps) return (other + size) % size;
    return other >= 0 && other < size ? other : undefined;
  };
  const parts = new Map<number, Part>([[rank, tensors]]);
  const [next, previous] = [at(1), at(-1)];
  for (let step = 0; step < size; step++) {
    const [sent, received] = [at(-step), at(-step - 1)];
    const isLast = wraps && step === size - 1;
    if (isLast || sent === undefined) break;
    const send = (): void => {
      if (next !== undefined) for (const x of parts.get(sent) ?? []) group.send(x, next);
    };
    const receive = (): void => {
      if (previous === undefined || received === undefined) return;
      const part = tensors.map((x) => group.recv(empty(x.backend, x.dtype, x.shape), previous));
      parts.set(received, part);
    };
    for (const act of rank % 2 === 0 ? [send, receive] : [receive, send]) act();
  }
  const order = [...parts.keys()].sort((a, b) => a - b);
  return tensors.map((x, i) => {
    const [positions = 0, ...rest] = x.shape;
    const all = empty(x.backend, x.dtype, [order.length * positions, ...rest]);
    for (const [position, other] of order.entries())
      all.paste(parts.get(other)?.[i] as Tensor, position * x.size);
    return all;
  });
}
