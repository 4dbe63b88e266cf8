/** A parameter of which ranks have rows each, as `fullyShard` divides it. */
import type { ProcessGroup } from "../distributed/group.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Shard, ShardGroup } from "../quantizers/shard.js";
import type { Uses } from "../tape/uses.js";
import type { Value } from "../tape/value.js";
import type { Shape } from "../tensor/shape.js";

/** How a parameter is divided, and what happens around each operation that uses it. */
export interface Sharding extends Uses {
  /** The ranks that it is divided among. */
  readonly group: ProcessGroup;
  /** The shape of the whole. */
  readonly shape: Shape;
  /** The rows that each rank has: a dimension of size 1 is taken for a scalar's. */
  readonly rows: readonly number[];
  /** The rows of this rank. */
  readonly own: Value;
  /** Whether an operation that uses the parameter is running: `value` then gives the whole. */
  readonly inUse: boolean;
  /** The whole, of which the running operation may keep the handle. */
  lend(): Value;
  /** Releases what it holds of gradients beside `grad` of the parameter. */
  zeroGrad(): void;
  /** Frees the rows of this rank, and what is gathered. */
  dispose(): void;
}

/** Makes the quantizer of a quantized parameter; `shard` if what it quantizes is a part of the whole. */
export type WeightQuantizer = (shard: Shard | undefined) => Quantizer;

/** The part of a weight that a rank has among `among` where that is itself divided further: amaxes go over both groups. */
export function shardOf(group: ShardGroup, within: Shard | undefined): Shard {
  if (!within) return { group, dimension: "rows" };
  const both: ShardGroup = {
    rank: group.rank * within.group.size + within.group.rank,
    size: group.size * within.group.size,
    reduceMax(tensors) {
      group.reduceMax(tensors);
      within.group.reduceMax(tensors);
    },
  };
  return { group: both, dimension: "rows" };
}
