/** Embeddings, and the gradients of their tables. */
import * as fc from "fast-check";
import { embedding, embeddingBackward } from "../../../src/ops/rows/embedding.js";
import type { Shape, WideDType } from "../../../src/tensor/shape.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/embedding.js";
import { download, PlainTensor, upload } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface EmbeddingCase {
  /** [V, D] */
  readonly table: PlainTensor<WideDType>;
  /** Row indices of the table; some are outside of it. */
  readonly ids: PlainTensor<"i32">;
  readonly outDtype: WideDType;
}

export interface EmbeddingBackwardCase {
  /** [...ids.shape, D] */
  readonly grad: PlainTensor<WideDType>;
  readonly ids: PlainTensor<"i32">;
  readonly vocabulary: number;
  readonly outDtype: WideDType;
}

interface Sizes {
  readonly vocabulary: number;
  readonly columns: number;
  readonly ids: PlainTensor<"i32">;
}

const LOWEST = -(2 ** 31);

const sizes: fc.Arbitrary<Sizes> = fc
  .record({
    vocabulary: fc.oneof(fc.constantFrom(0, 1, 31, 32, 33, 100), fc.integer({ min: 2, max: 40 })),
    columns: fc.oneof(fc.constantFrom(0, 1, 8, 16, 520), fc.integer({ min: 1, max: 40 })),
    shape: fc.constantFrom<Shape>([0], [1], [5], [40], [3, 7], [2, 0, 3], []),
  })
  .chain(({ vocabulary, columns, shape }) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const known = fc.nat({ max: Math.max(vocabulary - 1, 0) });
    const few = fc.nat({ max: 2 });
    const none = fc.constantFrom(-1, vocabulary, vocabulary + 1, LOWEST, 2 ** 31 - 1);
    const id = fc.oneof({ weight: 6, arbitrary: known }, { weight: 3, arbitrary: few }, none);
    return fc.array(id, { minLength: count, maxLength: count }).map((drawn) => ({
      vocabulary,
      columns,
      ids: new PlainTensor("i32", shape, Int32Array.from(drawn)),
    }));
  });

export const embeddingOperation: Operation<EmbeddingCase> = {
  arbitrary: sizes.chain(({ vocabulary, columns, ids }) =>
    fc.record({ table: wideTensor([vocabulary, columns]), ids: fc.constant(ids), outDtype: wideType() }),
  ),
  run: (backend, { table, ids, outDtype }) => ({
    out: download(embedding(upload(backend, table), upload(backend, ids), { outDtype })),
  }),
  oracle({ table, ids, outDtype }) {
    const [, columns] = table.matrix;
    const rows = oracle.embedding(rowsOf(table), columns, [...ids.data]);
    return { out: rounded(outDtype, [...ids.shape, columns], rows.flat()) };
  },
};

export const embeddingBackwardOperation: Operation<EmbeddingBackwardCase> = {
  arbitrary: sizes.chain(({ vocabulary, columns, ids }) =>
    fc.record({
      grad: wideTensor([...ids.shape, columns]),
      ids: fc.constant(ids),
      vocabulary: fc.constant(vocabulary),
      outDtype: wideType(),
    }),
  ),
  run: (backend, { grad, ids, vocabulary, outDtype }) => ({
    out: download(embeddingBackward(upload(backend, grad), upload(backend, ids), vocabulary, { outDtype })),
  }),
  oracle({ grad, ids, vocabulary, outDtype }) {
    const [, columns] = grad.matrix;
    const rows = oracle.embeddingBackward(rowsOf(grad), columns, [...ids.data], vocabulary);
    return { out: rounded(outDtype, [vocabulary, columns], rows.flat()) };
  },
};
