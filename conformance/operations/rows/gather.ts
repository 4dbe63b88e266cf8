/** Elements by index, and the gradient. */
import * as fc from "fast-check";
import { gather, gatherBackward } from "../../../src/ops/rows/gather.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/gather.js";
import { download, PlainTensor, upload } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation, PlainInputs } from "../operation.js";

export type GatherCase = PlainInputs<"gather">;

export interface GatherBackwardCase {
  /** [rows, k] */
  readonly grad: PlainTensor<WideDType>;
  readonly ids: PlainTensor<"i32">;
  readonly columns: number;
}

interface Sizes {
  readonly rows: number;
  readonly columns: number;
  readonly ids: PlainTensor<"i32">;
}

const OUTSIDE = [-1, -(2 ** 31), 2 ** 31 - 1];

/** Indices for rows of `columns` elements. Many repeat, and one of eight is out of range. */
export function gatherSizes(size: fc.Arbitrary<number>, most: number): fc.Arbitrary<Sizes> {
  return fc
    .record({ rows: size, columns: size, count: fc.integer({ min: 0, max: most }), seed: fc.nat() })
    .map(({ rows, columns, count, seed }) => {
      const drawn = Int32Array.from(words(seed, rows * count), (word) => {
        const index = word >>> 3;
        if (word % 8 === 0) return [...OUTSIDE, columns][index % 4] as number;
        return columns === 0 ? 0 : index % (word % 2 === 0 ? Math.min(3, columns) : columns);
      });
      return { rows, columns, ids: new PlainTensor("i32", [rows, count], drawn) };
    });
}

const sizes = gatherSizes(fc.oneof(fc.integer({ min: 0, max: 9 }), fc.constantFrom(1, 33, 128)), 12);

const idRows = ({ data, matrix: [rows, columns] }: PlainTensor<"i32">): number[][] =>
  Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * columns, (row + 1) * columns)));

/** Gathers by indices of these sizes. */
export function gatherCase(each: fc.Arbitrary<Sizes>): fc.Arbitrary<GatherCase> {
  return each.chain(({ rows, columns, ids }) => wideTensor([rows, columns]).map((x) => ({ x, ids })));
}

/** Gradients of gathers by indices of these sizes. */
export function gatherBackwardCase(each: fc.Arbitrary<Sizes>): fc.Arbitrary<GatherBackwardCase> {
  return each.chain(({ columns, ids }) => wideTensor(ids.shape).map((grad) => ({ grad, ids, columns })));
}

export const gatherOperation: Operation<GatherCase> = {
  arbitrary: gatherCase(sizes),
  run: (backend, { x, ids }) => ({ out: download(gather(upload(backend, x), 1, upload(backend, ids))) }),
  oracle: ({ x, ids }) => ({
    out: rounded(x.dtype, ids.shape, oracle.gather(rowsOf(x), idRows(ids)).flat()),
  }),
};

export const gatherBackwardOperation: Operation<GatherBackwardCase> = {
  arbitrary: gatherBackwardCase(sizes),
  run: (backend, { grad, ids, columns }) => ({
    out: download(gatherBackward(upload(backend, grad), 1, upload(backend, ids), columns)),
  }),
  oracle: ({ grad, ids, columns }) => {
    const sums = oracle.gatherBackward(rowsOf(grad), idRows(ids), columns);
    return { out: rounded(grad.dtype, [ids.matrix[0], columns], sums.flat()) };
  },
};
