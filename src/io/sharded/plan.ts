/**
 * Decides which rank writes which tensors of a sharded checkpoint. Every rank computes the same plan from the descriptions that
 * all ranks send.
 */
import { ArgumentError } from "../../errors.js";
import { sizeOfPart } from "../../tensor/part.js";
import { type Shape, sameShape } from "../../tensor/shape.js";
import type { FileDType } from "../dtypes.js";
import {
  type PartCopy,
  requireWholeTensor,
  type ShardedIndex,
  type StoredPart,
  type StoredTensor,
} from "./index-file.js";

/** The description of a tensor that a rank sends to the others. */
export interface RankTensor {
  readonly name: string;
  readonly dtype: FileDType;
  /** The shape of the whole tensor. */
  readonly shape: Shape;
  readonly ranges: StoredPart["ranges"];
  readonly stored: Shape;
  readonly recipe?: string | undefined;
  readonly sha256: string;
  readonly bytes: number;
}

/** The description of everything that a rank has. */
export interface RankState {
  readonly tensors: readonly RankTensor[];
  readonly steps?: Readonly<Record<string, number>> | undefined;
  readonly random: ShardedIndex["random"][0];
}

/**
 * Returns the tensors of the index. If several ranks have the same bytes of a part, the rank with the fewest bytes to write so
 * far writes the part. Throws `ArgumentError` unless the parts of all ranks form whole tensors.
 */
export function plannedTensors(caller: string, states: readonly RankState[]): ShardedIndex["tensors"] {
  const written = states.map(() => 0);
  const names = new Set(states.flatMap(({ tensors }) => tensors.map(({ name }) => name)));
  const byRank = states.map(({ tensors }) => new Map(tensors.map((tensor) => [tensor.name, tensor])));
  const planned = [...names].sort().map((name) => {
    const copies = byRank.flatMap((tensors, rank) => {
      const tensor = tensors.get(name);
      return tensor ? [{ rank, tensor }] : [];
    });
    const tensor = plannedTensor(`${caller}: tensor "${name}"`, copies, written);
    return [name, tensor] as const;
  });
  return Object.fromEntries(planned);
}

interface RankCopy {
  readonly rank: number;
  readonly tensor: RankTensor;
}

function plannedTensor(caller: string, copies: readonly RankCopy[], written: number[]): StoredTensor {
  const [first] = copies as readonly [RankCopy];
  const { dtype, shape } = first.tensor;
  for (const { rank, tensor } of copies)
    if (tensor.dtype !== dtype || !sameShape(tensor.shape, shape))
      throw new ArgumentError(
        `${caller}: is ${tensor.dtype} [${tensor.shape}] as a whole on rank ${rank} and ${dtype} [${shape}] on rank ${first.rank}; give other names by nameOf to what is not the same`,
      );
  const parts = [...grouped(copies, ({ tensor }) => JSON.stringify(tensor.ranges)).values()].flatMap(
    (same): StoredPart[] => {
      const [{ tensor }] = same as readonly [RankCopy];
      const { ranges, stored, recipe } = tensor;
      if (sizeOfPart({ shape, ranges }) === 0) return [];
      for (const each of same)
        if (each.tensor.recipe !== recipe || !sameShape(each.tensor.stored, stored))
          throw new ArgumentError(
            `${caller}: is quantized in another way on rank ${each.rank} than on rank ${first.rank}`,
          );
      const copies = [...grouped(same, (each) => each.tensor.sha256).values()].map((equal): PartCopy => {
        const ranks = equal.map(({ rank }) => rank);
        const file = ranks.reduce((a, b) => ((written[b] as number) < (written[a] as number) ? b : a));
        written[file] = (written[file] as number) + tensor.bytes;
        return { file, ranks, sha256: (equal[0] as RankCopy).tensor.sha256 };
      });
      return [{ ranges, stored, ...(recipe === undefined ? {} : { recipe }), copies }];
    },
  );
  const stored = { dtype, shape, parts };
  requireWholeTensor(caller, stored);
  return stored;
}

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

/** Returns the step counts of all ranks. Throws `ArgumentError` if two ranks have different counts for a parameter. */
export function plannedSteps(caller: string, states: readonly RankState[]): ShardedIndex["steps"] {
  if (states.every(({ steps }) => steps === undefined)) return undefined;
  const all: Record<string, number> = {};
  for (const [rank, { steps }] of states.entries())
    for (const [name, count] of Object.entries(steps ?? {})) {
      const existing = Object.hasOwn(all, name) ? all[name] : count;
      if (existing !== count)
        throw new ArgumentError(
          `${caller}: rank ${rank} has updated "${name}" ${count} times and another rank ${existing} times`,
        );
      Object.defineProperty(all, name, {
        value: count,
        enumerable: true,
        writable: true,
        configurable: true,
      });
    }
  return all;
}
