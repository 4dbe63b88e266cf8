/** Parameters of which each rank stores some rows, as `fullyShard` divides them. */
import type { GatherRequest, ProcessGroup } from "../collectives/group.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import type { AmaxReductionGroup, Shard, ShardGroup } from "../quantizers/shard.js";
import type { Uses } from "../tape/uses.js";
import type { Value } from "../tape/value.js";
import type { Shape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** What an operation needs of the other ranks, as it is brought here. */
export interface Bringing {
  /** Amaxes of this rank's rows, which become those of the whole before anything is sent. */
  readonly amaxes?:
    | { readonly own: readonly Tensor<"f32">[]; readonly group: AmaxReductionGroup }
    | undefined;
  /** What this rank sends. */
  requests(): readonly GatherRequest[];
  /** Takes what was gathered by these requests, which the caller disposes of. */
  arrive(gathered: readonly Tensor[]): void;
  /** Frees what was brought and not taken. */
  dispose(): void;
}

/** Begins to bring something for an operation before it runs; undefined where that is not known yet, or is here. */
export type Need = () => Bringing | undefined;

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
  /** The running operation needs this, and will when it runs again, or its backward function will. */
  needs(need: Need, where: "here" | "backward"): void;
  /** Takes what was brought for the running operation and is what the caller looks for; undefined if it was not brought. */
  take<B extends Bringing>(isIt: (brought: Bringing) => brought is B): B | undefined;
  /** The rows of this rank have changed: what was brought before is not the whole any more. */
  changed(): void;
  /** Releases the gradients that it holds besides the parameter's `grad`, and what was gathered ahead. */
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
