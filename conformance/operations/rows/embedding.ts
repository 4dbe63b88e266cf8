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
  /** Row indices of the table; some are out of range. */
  readonly ids: PlainTensor<"i32">;
  /** The id of the table's first row, and the number of all ids. Default: 0, and the table's rows. */
  readonly first?: number;
  readonly vocabulary?: number | undefined;
  readonly outDtype: WideDType;
}

export interface EmbeddingBackwardCase {
  /** [...ids.shape, D] */
  readonly grad: PlainTensor<WideDType>;
  readonly ids: PlainTensor<"i32">;
  readonly vocabulary: number;
  readonly first?: number;
  readonly outDtype: WideDType;
}

interface Sizes {
  /** Rows of the table. */
  readonly vocabulary: number;
  readonly first: number;
  /** The number of ids after the table's last row. */
  readonly idsAfter: number;
  readonly columns: number;
  readonly ids: PlainTensor<"i32">;
}

const LOWEST = -(2 ** 31);
/** Ids are below this number; table rows past it have no id. */
const ID_END = 2 ** 31;

const sizes: fc.Arbitrary<Sizes> = fc
  .record({
    vocabulary: fc.oneof(fc.constantFrom(0, 1, 31, 32, 33, 100), fc.integer({ min: 2, max: 40 })),
    columns: fc.oneof(fc.constantFrom(0, 1, 8, 16, 520), fc.integer({ min: 1, max: 40 })),
    shape: fc.constantFrom<Shape>([0], [1], [5], [40], [3, 7], [2, 0, 3], []),
    first: fc.oneof(
      { weight: 3, arbitrary: fc.constant(0) },
      fc.constantFrom(1, 40, ID_END - 200, ID_END - 20),
    ),
    idsAfter: fc.constantFrom(0, 0, 1, 50),
  })
  .chain(({ vocabulary, columns, shape, first, idsAfter }) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const tableId = fc.nat({ max: Math.max(vocabulary - 1, 0) }).map((row) => first + row);
    const few = fc.nat({ max: 2 }).map((row) => first + row);
    const end = first + vocabulary;
    const none = fc.constantFrom(-1, 0, first - 1, end, end + 1, end + idsAfter, LOWEST, 2 ** 31 - 1);
    const id = fc.oneof({ weight: 6, arbitrary: tableId }, { weight: 3, arbitrary: few }, none);
    return fc.array(id, { minLength: count, maxLength: count }).map((drawn) => ({
      ...{ vocabulary, columns, first, idsAfter },
      ids: new PlainTensor("i32", shape, Int32Array.from(drawn)),
    }));
  });

export const embeddingOperation: Operation<EmbeddingCase> = {
  arbitrary: sizes.chain(({ vocabulary, columns, ids, first, idsAfter }) => {
    const ends = first + vocabulary + idsAfter;
    return fc.record({
      table: wideTensor([vocabulary, columns]),
      ids: fc.constant(ids),
      first: fc.constant(first),
      vocabulary: fc.constant(ends <= ID_END ? ends : undefined),
      outDtype: wideType(),
    });
  }),
  run: (backend, { table, ids, ...options }) => ({
    out: download(embedding(upload(backend, table), upload(backend, ids), options)),
  }),
  oracle({ table, ids, outDtype, ...part }) {
    const [, columns] = table.matrix;
    const rows = oracle.embedding(rowsOf(table), columns, [...ids.data], part);
    return { out: rounded(outDtype, [...ids.shape, columns], rows.flat()) };
  },
};

export const embeddingBackwardOperation: Operation<EmbeddingBackwardCase> = {
  arbitrary: sizes.chain(({ vocabulary, columns, ids, first }) =>
    fc.record({
      first: fc.constant(first),
      grad: wideTensor([...ids.shape, columns]),
      ids: fc.constant(ids),
      vocabulary: fc.constant(vocabulary),
      outDtype: wideType(),
    }),
  ),
  run: (backend, { grad, ids, vocabulary, ...options }) => ({
    out: download(embeddingBackward(upload(backend, grad), upload(backend, ids), vocabulary, options)),
  }),
  oracle({ grad, ids, vocabulary, first, outDtype }) {
    const [, columns] = grad.matrix;
    const rows = oracle.embeddingBackward(rowsOf(grad), columns, [...ids.data], vocabulary, first);
    return { out: rounded(outDtype, [vocabulary, columns], rows.flat()) };
  },
};
