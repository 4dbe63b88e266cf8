/** How layers are divided among ranks: options, and what they are checked for. */
import type { Backend } from "../../backends/backend.js";
import { ProcessGroup } from "../../distributed/group.js";
import { ArgumentError } from "../../errors.js";
import { boolean, instance, type OptionTable, oneOf } from "../../options.js";

/** Ranks that share work: what modules take that are divided among ranks, or whose input is. */
export interface SequenceParallelOptions {
  /** The ranks. All of them make the same layers and calls, in the same order. Default: this rank alone. */
  readonly group?: ProcessGroup | undefined;
  /**
   * Whether activations between tensor-parallel layers are divided by rows, their first dimension: every rank has as many.
   * Default false: every rank has all rows.
   */
  readonly sequenceParallel?: boolean | undefined;
}

/** How a weight [N, K] is divided: by its rows, N, or by its columns, K. */
export type ParallelMode = "column" | "row";

/** How a linear layer is divided among ranks, in TransformerEngine's names. */
export interface ParallelOptions extends SequenceParallelOptions {
  /**
   * `column`: each rank has outFeatures / n rows of the weight and computes as many columns of the result. `row`: each rank has
   * inFeatures / n columns of the weight and of the input, and results are summed over the group. Needed with `group`.
   */
  readonly parallelMode?: ParallelMode | undefined;
}

/** The rows of `SequenceParallelOptions`. */
export const SEQUENCE_PARALLEL_OPTIONS: OptionTable<SequenceParallelOptions> = {
  group: instance(ProcessGroup, "a ProcessGroup, such as openProcessGroup() gives"),
  sequenceParallel: boolean,
};

/** The rows of `ParallelOptions`. */
export const PARALLEL_OPTIONS: OptionTable<ParallelOptions> = {
  ...SEQUENCE_PARALLEL_OPTIONS,
  parallelMode: oneOf(["column", "row"]),
};

/** The group, where it is more than this rank. Throws `ArgumentError` for options that do not go together. */
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

/** As `groupOf`, of a layer with a weight that is divided in one of two ways. */
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
