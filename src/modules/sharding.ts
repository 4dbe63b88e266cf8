/** Parameters of which each rank stores some rows, as `fullyShard` divides them. */
import type { ProcessGroup } from "../distributed/group.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { Shard, ShardGroup } from "../quantizers/shard.js";
import type { Uses } from "../tape/uses.js";
import type { Value } from "../tape/value.js";
import type { Shape } from "../tensor/shape.js";

/** How a parameter is divided, and the functions that are called around each operation that uses it. */
export interface Sharding extends Uses {
  /** The ranks among which it is divided. */
  readonly group: ProcessGroup;
  /** The shape of the whole parameter. */
  readonly shape: Shape;
  /** The number of rows of each rank. A scalar counts as one row. */
  readonly rows: readonly number[];
  /** This rank's rows. */
  readonly own: Value;
  /** Whether an operation that uses the parameter is running. `value` then returns the whole parameter. */
  readonly inUse: boolean;
  /** Returns the whole parameter. The running operation may keep the handle. */
  lend(): Value;
  /** Releases the gradients that it holds besides the parameter's `grad`. */
  zeroGrad(): void;
  /** Frees this rank's rows and the gathered parameter. */
  dispose(): void;
}

/**
 * Creates the quantizer of a quantized parameter. `shard` is given if the tensor to quantize is a part of the whole parameter.
 */
export type WeightQuantizer = (shard: Shard | undefined) => Quantizer;

/**
 * Returns this rank's part of a weight that is divided among `among` and, if `within` is given, is itself a part of a larger
 * weight. Amaxes are reduced over both groups.
 */
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
