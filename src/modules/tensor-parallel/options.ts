/** Options that divide linear layers among ranks, and their checks. */
import type { Backend } from "../../backends/backend.js";
import type { ProcessGroup } from "../../collectives/group.js";
import { ArgumentError } from "../../errors.js";
import { groupOf, SEQUENCE_PARALLEL_OPTIONS, type SequenceParallelOptions } from "../../functional/ranks.js";
import { boolean, integer, type OptionTable, oneOf } from "../../options.js";

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
  /**
   * The number of tensors that are concatenated along the columns of a column-parallel result. Each of them is divided
   * separately: 3 for queries, keys and values. Default 1.
   */
  readonly pieces?: number | undefined;
  /**
   * Whether rows are exchanged in two chunks, so that on a GPU one chunk is exchanged while the other is multiplied. The bits
   * do not change. Rows are exchanged at once if a chunk would not consist of complete blocks or could not be a view. Default:
   * true where it was measured to be faster, that is, under `sequenceParallel`, with at least 8192 rows on each rank, in high
   * precision or with per-tensor scales; else false. Requires `group`.
   */
  readonly overlap?: boolean | undefined;
}

/** Checks the fields of `ParallelOptions`. */
export const PARALLEL_OPTIONS: OptionTable<ParallelOptions> = {
  ...SEQUENCE_PARALLEL_OPTIONS,
  parallelMode: oneOf(["column", "row"]),
  pieces: integer(1),
  overlap: boolean,
};

/** Returns the option `overlap`. Throws `ArgumentError` if it is given without a group. */
export function overlapOf(
  caller: string,
  { group, overlap }: Pick<ParallelOptions, "group" | "overlap">,
): boolean | undefined {
  if (overlap === undefined || group) return overlap;
  throw new ArgumentError(
    `${caller}: overlap is set, which divides the exchange of rows between ranks into chunks; give group, or leave overlap out`,
  );
}

/** Returns the group of a layer whose weight is divided by rows or by columns, as `groupOf` does. */
export function dividedGroup(
  caller: string,
  backend: Backend,
  options: ParallelOptions,
): ProcessGroup | undefined {
  const { group, parallelMode, pieces = 1 } = options;
  if (parallelMode && !group)
    throw new ArgumentError(
      `${caller}: parallelMode ${parallelMode} divides the weight among ranks; give group`,
    );
  if (group && !parallelMode)
    throw new ArgumentError(
      `${caller}: group is set and parallelMode is not; give "column" or "row", or leave group out`,
    );
  if (pieces > 1 && parallelMode !== "column")
    throw new ArgumentError(
      `${caller}: pieces is ${pieces}, which divides the columns of a column-parallel result; give parallelMode "column", or leave pieces out`,
    );
  return groupOf(caller, backend, options);
}
