/** Embedding lookup and its gradient on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, wideOf } from "../lowering.js";

export const embeddingBackward: Lowering<"embeddingBackward"> = {
  run({ pool, withTemporary }, { grad, ids, first, out }) {
    const [vocabulary, columns] = asMatrix(out.shape);
    withTemporary(4 * (vocabulary + ids.size), (heads) => {
      const chains = { heads, next: heads + 4 * vocabulary };
      pool.call("embeddingChains", { ids: ids.address, count: ids.size, vocabulary, first, ...chains });
      const gradient = { gradType: wideOf(grad), ...chains };
      const result = { out: out.address, outType: wideOf(out), columns };
      const weight = columns * (1 + ids.size / vocabulary);
      pool.run(
        "embeddingBackward",
        { total: vocabulary, weight },
        { grad: grad.address, ...gradient, ...result },
      );
    });
  },
};
