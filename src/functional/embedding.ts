/** Differentiable embedding. */
import type { ProcessGroup } from "../collectives/group.js";
import { ShapeError } from "../errors.js";
import { embeddingBackward, embedding as lookUp } from "../ops/rows/embedding.js";
import { optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { transientValue } from "../tape/uses.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { requireTensor } from "../tensor/require.js";
import type { Tensor } from "../tensor/tensor.js";
import {
  allReduceSum,
  groupOf,
  rankIds,
  SEQUENCE_PARALLEL_OPTIONS,
  type SequenceParallelOptions,
} from "./ranks.js";

const checkOptions = optionsOf(SEQUENCE_PARALLEL_OPTIONS);

/**
 * Returns the rows of `table` [V, D] whose indices are `ids`, an i32 tensor. The result is [...ids.shape, D]. See the operation
 * `embedding`.
 *
 * With `group` the full table is divided among ranks, each of which has the same number of rows, and all ranks give the same ids.
 * The result is bitwise equal to a lookup in the full table.
 *
 * @throws `DTypeError` for an unsupported dtype, `ShapeError` for incompatible shapes, `ArgumentError` for an argument that is
 * not a tensor, an invalid option, or tensors on different backends, `DisposedError` for a disposed tensor or group,
 * `DistributedError` for a group that has failed, and for ranks with different numbers of rows.
 */
export function embedding(table: VariableLike, ids: Tensor, options: SequenceParallelOptions = {}): Variable {
  const ownOptions = checkOptions("embedding", options);
  const { sequenceParallel = false } = ownOptions;
  const source = variableOf("embedding", "table", table);
  const group = groupOf("embedding", source.backend, ownOptions);
  if (group && sequenceParallel) requireDivisible(group, ids);
  return differentiableOne([source], () => {
    const localTable = wideOf("embedding: the table", transientValue(source));
    const [rows] = localTable.shape as readonly [number, number];
    const part = group && rankIds(group, rows);
    const localRows = lookUp(localTable, ids, part);
    return {
      result: group
        ? group.withSubject(`${rows} ids on each rank`, () =>
            allReduceSum(group, localRows, sequenceParallel),
          )
        : localRows,
      backward: (grad) => {
        const localGrad = wideOf("embedding: the gradient", grad);
        const allGrads = group && sequenceParallel ? group.allGather(localGrad) : localGrad;
        return [embeddingBackward(allGrads, ids, rows, { first: part?.first })];
      },
    };
  });
}

/** Throws `ShapeError` for ids whose first dimension is not divisible by the number of ranks. */
function requireDivisible({ size }: ProcessGroup, ids: Tensor): void {
  const [rows] = requireTensor("embedding", "ids", ids).shape;
  if (rows === undefined || rows % size !== 0)
    throw new ShapeError(
      `embedding: ids are [${ids.shape}]; under sequenceParallel their first dimension is divided among ${size} ranks; pad it`,
    );
}
