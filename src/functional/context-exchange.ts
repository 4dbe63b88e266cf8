/** The exchange of positions between the ranks of context parallelism. */
import type { ProcessGroup } from "../collectives/group.js";
import { empty } from "../ops/create.js";
import { elementCount } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Which positions a rank collects, and how. */
export interface CollectOptions {
  readonly group: ProcessGroup;
  /** The ranks whose positions are collected, of which this rank is always one. */
  readonly direction: "lower" | "higher" | "all";
  /** Whether each rank passes on what it receives, from neighbour to neighbour. Otherwise all ranks gather everything. */
  readonly around: boolean;
}

/** Returns the tensors [S, ...] of the ranks, concatenated in ascending order. All ranks have tensors of the same shapes. */
export function collectPositions(tensors: readonly Tensor[], options: CollectOptions): readonly Tensor[] {
  const { group, direction, around } = options;
  // ranks with another mask collect other positions; the group compares this description
  const subject = direction === "all" ? "positions of all ranks" : "positions under the causal mask";
  return group.withSubject(subject, () =>
    around ? passTensors(tensors, options) : gatherTensors(tensors, options),
  );
}

function gatherTensors(tensors: readonly Tensor[], { group, direction }: CollectOptions): readonly Tensor[] {
  const gatheredTensors = group.allGatherCoalesced(tensors.map((x) => ({ x })));
  if (direction === "all") return gatheredTensors;
  const { rank, size } = group;
  const [first, last] = direction === "lower" ? [0, rank + 1] : [rank, size];
  return gatheredTensors.map((x, i) => {
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
function passTensors(tensors: Part, { group, direction }: CollectOptions): readonly Tensor[] {
  const { rank, size } = group;
  const step = direction === "higher" ? -1 : 1;
  const wraps = direction === "all";
  /** Returns the rank at a distance in this direction, or undefined if there is none. */
  const rankAt = (distance: number): number | undefined => {
    const peer = rank + step * distance;
    if (wraps) return (peer + size) % size;
    return peer >= 0 && peer < size ? peer : undefined;
  };
  const tensorsByRank = new Map<number, Part>([[rank, tensors]]);
  const [next, previous] = [rankAt(1), rankAt(-1)];
  for (let step = 0; step < size; step++) {
    const [destination, source] = [rankAt(-step), rankAt(-step - 1)];
    const isLast = wraps && step === size - 1;
    if (isLast || destination === undefined) break;
    const send = (): void => {
      if (next !== undefined) for (const x of tensorsByRank.get(destination) ?? []) group.send(x, next);
    };
    const receive = (): void => {
      if (previous === undefined || source === undefined) return;
      const part = tensors.map((x) => group.recv(empty(x.backend, x.dtype, x.shape), previous));
      tensorsByRank.set(source, part);
    };
    for (const act of rank % 2 === 0 ? [send, receive] : [receive, send]) act();
  }
  const order = [...tensorsByRank.keys()].sort((a, b) => a - b);
  return tensors.map((x, i) => {
    const [positions = 0, ...rest] = x.shape;
    const result = empty(x.backend, x.dtype, [order.length * positions, ...rest]);
    for (const [position, source] of order.entries())
      result.paste(tensorsByRank.get(source)?.[i] as Tensor, position * x.size);
    return result;
  });
}
