/** Embeddings on the reference. */
import { asMatrix } from "../../../tensor/shape.js";
import { type Lowering, operand } from "../lowering.js";

export const embedding: Lowering<"embedding"> = {
  run({ pool }, { table, ids, out }) {
    const [vocabulary, columns] = asMatrix(table.shape);
    const head = [...operand(table), ids.address, ...operand(out), vocabulary, columns];
    pool.run("embedding", { total: ids.size, weight: columns }, (scratch) => [...head, scratch]);
  },
};

export const embeddingBackward: Lowering<"embeddingBackward"> = {
  run({ exports, pool, withTemporary }, { grad, ids, out }) {
    const [vocabulary, columns] = asMatrix(out.shape);
    withTemporary(4 * (vocabulary + ids.size), (heads) => {
      const next = heads + 4 * vocabulary;
      exports.embeddingChains(ids.address, ids.size, vocabulary, heads, next);
      const head = [...operand(grad), heads, next, ...operand(out), columns];
      const weight = columns * (1 + ids.size / vocabulary);
      pool.run("embeddingBackward", { total: vocabulary, weight }, (scratch) => [...head, scratch]);
    });
  },
};
