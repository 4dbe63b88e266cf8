/** Options that divide layers among ranks, and their checks. */
import type { Backend } from "../../backends/backend.js";
import { ProcessGroup } from "../../distributed/group.js";
import { ArgumentError } from "../../errors.js";
import { boolean, instance, type OptionTable, oneOf } from "../../options.js";

/** Options of modules whose input may be divided among ranks. */
export interface SequenceParallelOptions {
  /**
   * The group of ranks. All of its ranks must create the same layers and make the same calls, in the same order. Default: this
   * rank alone.
   */
  readonly group?: ProcessGroup | undefined;
  /**
   * Whether activations between tensor-parallel layers are divided evenly among ranks by rows (the first dimension). Default
   * false: every rank has all rows.
   */
  readonly sequenceParallel?: boolean | undefined;
}

/** How a weight [N, K] is divided: by its rows, N, or by its columns, K. */
export type ParallelMode = "column" | "row";

/** Options that divide a linear layer among ranks, with TransformerEngine's names. */
export interface ParallelOptions extends SequenceParallelOptions {
  /**
   * `column`: each rank has outFeatures / n rows of the weight and computes the corresponding columns of the result. `row`: each
   * rank has inFeatures / n columns of the weight and of the input, and the results are summed over the group. Required with
   * `group`.
   */
  readonly parallelMode?: ParallelMode | undefined;
}

/** Checks the fields of `SequenceParallelOptions`. */
export const SEQUENCE_PARALLEL_OPTIONS: OptionTable<SequenceParallelOptions> = {
  group: instance(ProcessGroup, "a ProcessGroup, such as openProcessGroup() gives"),
  sequenceParallel: boolean,
};

/** Checks the fields of `ParallelOptions`. */
export const PARALLEL_OPTIONS: OptionTable<ParallelOptions> = {
  ...SEQUENCE_PARALLEL_OPTIONS,
  parallelMode: oneOf(["column", "row"]),
};

/** Returns the group if it has more than one rank, else undefined. Throws `ArgumentError` for contradictory options. */
export function groupOf(
  user: string,
  backend: Backend,
  { group, sequenceParallel }: SequenceParallelOptions,
): ProcessGroup | undefined {
  if (!group && sequenceParallel)
    throw new ArgumentError(`${user}: sequenceParallel divides rows among the ranks of a group; give group`);
  if (group && group.backend !== backend)
    throw new ArgumentError(
      `${user}: the group is of another backend than the module; make the module on group.backend`,
    );
  return group && group.size > 1 ? group : undefined;
}

/** As `groupOf`, for a layer whose weight is divided by rows or by columns. */
export function dividedGroup(
  user: string,
  backend: Backend,
  options: ParallelOptions,
): ProcessGroup | undefined {
  const { group, parallelMode } = options;
  if (parallelMode && !group)
    throw new ArgumentError(
      `${user}: parallelMode ${parallelMode} divides the weight among ranks; give group`,
    );
  if (group && !parallelMode)
    throw new ArgumentError(
      `${user}: group is given and parallelMode is not; give "column" or "row", or leave group out`,
    );
  return groupOf(user, backend, options);
}
