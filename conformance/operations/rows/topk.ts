/** The largest elements of rows. */
import * as fc from "fast-check";
import { topk } from "../../../src/ops/rows/topk.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { narrowed } from "../../arbitraries/patterns.js";
import { wideTensor } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/topk.js";
import { download, fromCodes, PlainTensor, upload } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation } from "../operation.js";

export interface TopkCase {
  /** [T, E] */
  readonly x: PlainTensor<WideDType>;
  readonly k: number;
  readonly numGroups: number;
  readonly groupTopk: number;
}

/** Values of which many are equal. */
const EDGES = [0, 0, 1, 1, 2 ** -149, 448];

const MINUS_INFINITY = 0xff800000;
const NAN = 0x7fc00000;
/** A period beyond the sizes of tensors: a multiple of it leaves one number at most. */
const NO_NUMBER = 2 ** 20;

/**
 * The elements of a tensor that stay numbers. The others are minus infinity or NaN, as in rows with fewer numbers than are
 * chosen.
 */
interface Numbers {
  readonly period: number;
  readonly shift: number;
}

const numbers = fc.option(
  fc.record({ period: fc.constantFrom(2, 5, NO_NUMBER, NO_NUMBER), shift: fc.nat(8) }),
  {
    nil: undefined,
  },
);

function withFewNumbers(x: PlainTensor<WideDType>, { period, shift }: Numbers): PlainTensor<WideDType> {
  const codes = Array.from(x.codes, (code, i) =>
    (i + shift) % period === 0 ? code : narrowed(i % 3 === 0 ? NAN : MINUS_INFINITY, x.dtype),
  );
  return fromCodes(x.dtype, x.shape, codes);
}

/** Calls on rows of groups. */
export function topkCase(rows: fc.Arbitrary<number>, sizes: fc.Arbitrary<number>): fc.Arbitrary<TopkCase> {
  return fc
    .record({ rows, size: sizes, numGroups: fc.constantFrom(1, 2, 4, 8), chosen: fc.nat(), each: fc.nat() })
    .chain(({ rows: count, size, numGroups, chosen, each }) => {
      const groupTopk = 1 + (chosen % numGroups);
      const isLimited = groupTopk < numGroups;
      const k = isLimited ? groupTopk * (1 + (each % size)) : 1 + (each % (numGroups * size));
      return fc
        .tuple(wideTensor([count, numGroups * size], { edges: EDGES }), numbers)
        .map(([x, few]) => ({ x: few ? withFewNumbers(x, few) : x, k, numGroups, groupTopk }));
    });
}

export const topkOperation: Operation<TopkCase> = {
  arbitrary: topkCase(fc.constantFrom(0, 1, 2, 9), fc.constantFrom(1, 2, 5, 8, 33)),
  run(backend, { x, k, ...groups }) {
    const { indices, routingMap, mask } = topk(upload(backend, x), k, groups);
    return { indices: download(indices), routingMap: download(routingMap), mask: download(mask) };
  },
  oracle({ x, k, numGroups, groupTopk }) {
    const chosen = rowsOf(x).map((row) => oracle.topk(row, k, { groups: numGroups, groupTopk }));
    const map = chosen.flatMap((each) =>
      Array.from({ length: x.matrix[1] }, (_, e) => Number(each.includes(e))),
    );
    return {
      indices: new PlainTensor("i32", [x.matrix[0], k], Int32Array.from(chosen.flat())),
      routingMap: new PlainTensor("i32", x.shape, Int32Array.from(map)),
      mask: rounded("f32", x.shape, map),
    };
  },
};
