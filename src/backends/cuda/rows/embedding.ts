/** Embedding lookup and its gradient on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import type { Lowering } from "../lowering.js";
import { bounded, type Declarations, reads, scratch, writes } from "../native-arguments.js";

export const EMBEDDING_CALLS = {
  embeddingBackward: {
    count: bounded({ to: 2 ** 32 - 1 }),
    vocabulary: "count",
    first: bounded({ to: 2 ** 31 - 1, type: "int32_t" }),
    columns: "count",
    grad: reads.wide("count * columns"),
    ids: reads.i32("count"),
    out: writes.wide("vocabulary * columns", "The rows of the ids from `first` on."),
    workspace: scratch.u32(
      "vocabulary + 1 + count",
      "vocabulary + 1 offsets, then the positions whose id has a row, sorted by id. Those of row v are between offsets v and v + 1.",
    ),
  },
} as const satisfies Declarations;

export const embeddingBackward: Lowering<"embeddingBackward"> = {
  run({ addon, device, withTemporary }, { grad, ids, first, out }) {
    const [vocabulary, columns] = asMatrix(out.shape);
    withTemporary(4 * (vocabulary + 1 + ids.size), (workspace) =>
      addon.embeddingBackward(device, {
        count: ids.size,
        vocabulary,
        first,
        columns,
        grad,
        ids,
        out,
        workspace,
      }),
    );
  },
};
