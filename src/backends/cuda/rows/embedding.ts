/** Embedding lookup and its gradient on a GPU. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, wideOf } from "../lowering.js";
import type { Declarations } from "../native-arguments.js";
import { GRAD, OUT } from "../shared-arguments.js";

export const EMBEDDING_CALLS = {
  embedding: {
    table: "pointer",
    tableType: "wide",
    ids: "pointer",
    ...OUT,
    count: "count",
    vocabulary: "count",
    first: "count",
    whole: "count",
    columns: "count",
  },
  embeddingBackward: {
    ...GRAD,
    ids: "pointer",
    ...OUT,
    count: "count",
    vocabulary: "count",
    first: "count",
    columns: "count",
    workspace: "pointer",
  },
} as const satisfies Declarations;

export const embedding: Lowering<"embedding"> = {
  run({ addon, device }, { table, ids, first, whole, out }) {
    const [vocabulary, columns] = asMatrix(table.shape);
    addon.embedding(device, {
      table: table.address,
      tableType: wideOf(table),
      ids: ids.address,
      out: out.address,
      outType: wideOf(out),
      count: ids.size,
      vocabulary,
      first,
      whole,
      columns,
    });
  },
};

export const embeddingBackward: Lowering<"embeddingBackward"> = {
  run({ addon, device, withTemporary }, { grad, ids, first, out }) {
    const [vocabulary, columns] = asMatrix(out.shape);
    withTemporary(4 * (vocabulary + 1 + ids.size), (workspace) =>
      addon.embeddingBackward(device, {
        grad: grad.address,
        gradType: wideOf(grad),
        ids: ids.address,
        out: out.address,
        outType: wideOf(out),
        count: ids.size,
        vocabulary,
        first,
        columns,
        workspace,
      }),
    );
  },
};
