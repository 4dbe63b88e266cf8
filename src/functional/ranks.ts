/** The options by which functions and modules are divided among ranks, and their checks. */
import type { Backend } from "../backends/backend.js";
import { ProcessGroup } from "../collectives/group.js";
import { ArgumentError } from "../errors.js";
import { boolean, instance, type OptionTable } from "../options.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";

/** Options of functions and modules whose input may be divided among ranks. */
export interface SequenceParallelOptions {
  /**
   * The group of ranks. All of its ranks must create the same layers and make the same calls, in the same order. Default:
   * nothing is divided.
   */
  readonly group?: ProcessGroup | undefined;
  /**
   * Whether activations between tensor-parallel layers are divided evenly among ranks by rows (the first dimension). Default
   * false: every rank has all rows.
   */
  readonly sequenceParallel?: boolean | undefined;
}

/** Checks that a value is a process group. */
export const processGroup = instance(ProcessGroup, "a ProcessGroup; openProcessGroup() opens one");

/** Checks the fields of `SequenceParallelOptions`. */
export const SEQUENCE_PARALLEL_OPTIONS: OptionTable<SequenceParallelOptions> = {
  group: processGroup,
  sequenceParallel: boolean,
};

/**
 * Returns the group if it has more than one rank, else undefined. `backend` is the backend of the tensors or the module that the
 * group divides. Throws `ArgumentError` for contradictory options.
 */
export function groupOf(
  caller: string,
  backend: Backend,
  { group, sequenceParallel }: SequenceParallelOptions,
): ProcessGroup | undefined {
  if (!group && sequenceParallel)
    throw new ArgumentError(
      `${caller}: sequenceParallel divides rows among the ranks of a group; give group`,
    );
  if (group && group.backend !== backend)
    throw new ArgumentError(
      `${caller}: the group is on another backend than the tensors or the module; create them on group.backend`,
    );
  return group && group.size > 1 ? group : undefined;
}

/** Returns the first id or class of this rank, and their total number. Each rank has `count` of them, in order of ranks. */
export function rankIds({ rank, size }: ProcessGroup, count: number) {
  return { first: rank * count, vocabulary: size * count };
}

/** Returns the sum of x over the ranks, written to x, or with `sequenceParallel` this rank's rows of the sum. */
export function allReduceSum<D extends WideDType>(
  group: ProcessGroup,
  x: Tensor<D>,
  sequenceParallel = false,
): Tensor<D> {
  return sequenceParallel ? group.reduceScatter(x) : group.allReduce(x, { out: x });
}
