/** Differentiable exchange of rows among ranks. */
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { integer, listOf, needed, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { processGroup } from "./ranks.js";

/** The numbers of rows that `functional.allToAll` exchanges. */
export interface ExchangedRows {
  /** The number of rows for each rank. */
  readonly sent: readonly number[];
  /** The number of rows from each rank. */
  readonly received: readonly number[];
}

const counts = listOf(integer(0));
const checkRows = optionsOf<ExchangedRows>({ sent: needed(counts), received: needed(counts) }, "rows");

/**
 * Sends rows of x to each rank of `group`: the first sent[0] rows to rank 0, and so on. Returns the rows received from all ranks,
 * in the order of ranks. The numbers of rows may differ between pairs of ranks and may be 0; a rank must receive as many rows as
 * the other one sends. The gradient of x is the gradient of the result, sent back. Elements are copied unchanged.
 *
 * @throws `DTypeError` for a tensor that is not f32, bf16 or f16, `ShapeError` unless the first size of x is the sum of `sent`,
 * `ArgumentError` for lists without a number for each rank, for an argument that is not a tensor or a group, and for a group of
 * another backend, `DisposedError` for a disposed tensor or group, `DistributedError` for a group that has failed, and for ranks
 * whose numbers differ.
 */
export function allToAll(x: VariableLike, group: ProcessGroup, rows: ExchangedRows): Variable {
  const source = variableOf("allToAll", "x", x);
  const ranks = processGroup("allToAll", "group", group) as ProcessGroup;
  const { sent, received } = checkRows("allToAll", rows);
  for (const [name, list] of Object.entries({ sent, received })) {
    if (list.length !== ranks.size)
      throw new ArgumentError(
        `allToAll: ${name} has ${list.length} numbers; give one for each of ${ranks.size} ranks`,
      );
  }
  const total = sent.reduce((sum, count) => sum + count, 0);
  if (source.shape[0] !== total)
    throw new ShapeError(
      `allToAll: x is [${source.shape}]; its first size must be ${total}, the sum of sent`,
    );
  return differentiableOne([source], () => ({
    result: ranks.allToAll(wideOf("allToAll: x", source.value), { sent, received }),
    backward: (grad) => [
      ranks.allToAll(wideOf("allToAll: the gradient", grad), { sent: received, received: sent }),
    ],
  }));
}
