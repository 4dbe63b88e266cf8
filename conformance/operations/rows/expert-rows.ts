/** Rows of experts: their order, rows by index, and sums and dot products of these. */
import * as fc from "fast-check";
import { combineRows, rowDots, rowIdMap, takeRows } from "../../../src/ops/rows/expert-rows.js";
import type { WideDType } from "../../../src/tensor/shape.js";
import { words } from "../../arbitraries/random.js";
import { wideTensor, wideType } from "../../arbitraries/wide.js";
import * as oracle from "../../oracle/rows/expert-rows.js";
import { download, PlainTensor, upload, wideValues } from "../../values/plain.js";
import { rounded, rowsOf } from "../../values/rounded.js";
import type { Operation, TypedInputs } from "../operation.js";

export interface RowIdMapCase {
  /** [T, C] */
  readonly routingMap: PlainTensor<"i32">;
  readonly numOutTokens: number;
  /** Undefined for a mask map, whose columns are the experts. */
  readonly numExperts: number | undefined;
  readonly alignSize: number;
}

export interface TakeRowsCase {
  /** [R, D] */
  readonly x: PlainTensor<WideDType>;
  /** [N]; some are out of range. */
  readonly sources: PlainTensor<"i32">;
  readonly entriesPerRow: number;
  readonly weights: PlainTensor<WideDType> | undefined;
  readonly outDtype: WideDType;
}

export type CombineRowsCase = TypedInputs<"combineRows">;

export type RowDotsCase = TypedInputs<"rowDots">;

/** Sizes for which drawn inputs are small, or others. */
export interface ExpertSizes {
  readonly tokens: fc.Arbitrary<number>;
  readonly experts: fc.Arbitrary<number>;
  readonly columns: fc.Arbitrary<number>;
}

const SMALL: ExpertSizes = {
  tokens: fc.oneof(fc.constantFrom(0, 1, 33), fc.integer({ min: 0, max: 20 })),
  experts: fc.oneof(fc.constantFrom(0, 1, 2, 8), fc.integer({ min: 1, max: 12 })),
  columns: fc.oneof(fc.constantFrom(0, 1, 8, 33, 520), fc.integer({ min: 1, max: 40 })),
};

const OUTSIDE = [-1, -(2 ** 31), 2 ** 31 - 1];

/** How tokens choose experts: at random, all one expert, none, or never the first. */
const PATTERNS = ["random", "one", "none", "withoutFirst"] as const;

const chosen = (pattern: (typeof PATTERNS)[number], word: number, experts: number): number => {
  if (pattern === "none" || experts === 0) return -1;
  if (pattern === "one") return experts - 1;
  const index = (word >>> 8) % experts;
  return pattern === "withoutFirst" && index === 0 ? -1 : index;
};

/** Routing maps of both kinds. Some tokens have no expert, and some experts no token; some rows are beyond the last one. */
export function rowIdMapCase({ tokens, experts }: ExpertSizes = SMALL): fc.Arbitrary<RowIdMapCase> {
  return fc
    .record({
      tokens,
      experts,
      choices: fc.constantFrom(0, 1, 2, 5),
      indices: fc.boolean(),
      pattern: fc.constantFrom(...PATTERNS),
      alignSize: fc.constantFrom(1, 1, 2, 16, 32),
      rest: fc.constantFrom(-7, -1, 0, 0, 0, 3, 100),
      seed: fc.nat(),
    })
    .map((each) => {
      const width = each.indices ? each.choices : each.experts;
      const data = Int32Array.from(words(each.seed, each.tokens * width), (word, i) => {
        const expert = chosen(each.pattern, word, each.experts);
        if (each.indices) return word % 16 === 0 ? (OUTSIDE[(word >>> 4) % 3] as number) : expert;
        return each.pattern === "random"
          ? Number(word % 3 === 0) * ((word >>> 4) | 1)
          : Number(expert === i % width);
      });
      const routingMap = new PlainTensor("i32", [each.tokens, width], data);
      const { alignSize } = each;
      const padded = data.length + each.experts * (alignSize - 1);
      return {
        routingMap,
        numExperts: each.indices ? each.experts : undefined,
        alignSize,
        numOutTokens: Math.max(padded + each.rest, 0),
      };
    });
}

/** Indices of which some are outside 0 to `limit` - 1. */
function indices(
  shape: readonly [number, number] | readonly [number],
  limit: number,
  seed: number,
): PlainTensor<"i32"> {
  const count = shape.reduce<number>((product, size) => product * size, 1);
  const data = Int32Array.from(words(seed, count), (word) => {
    if (word % 8 === 0 || limit === 0) return [...OUTSIDE, limit][(word >>> 3) % 4] as number;
    return (word >>> 3) % limit;
  });
  return new PlainTensor("i32", shape, data);
}

const sometimes = <T>(each: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(each, { nil: undefined, freq: 2 });

/** Calls of `takeRows`. */
export function takeRowsCase({ tokens, columns }: ExpertSizes = SMALL): fc.Arbitrary<TakeRowsCase> {
  return fc
    .record({ rows: tokens, count: tokens, columns, entriesPerRow: fc.constantFrom(1, 2, 8), seed: fc.nat() })
    .chain(({ rows, count, columns: width, entriesPerRow, seed }) =>
      fc.record({
        x: wideTensor([rows, width]),
        sources: fc.constant(indices([count], rows * entriesPerRow, seed)),
        entriesPerRow: fc.constant(entriesPerRow),
        weights: sometimes(wideTensor([rows, entriesPerRow])),
        outDtype: wideType(),
      }),
    );
}

const sums = ({ tokens, columns }: ExpertSizes) =>
  fc.record({ tokens, rows: tokens, columns, choices: fc.constantFrom(0, 1, 2, 8), seed: fc.nat() });

/** Calls of `combineRows`. */
export function combineRowsCase(sizes: ExpertSizes = SMALL): fc.Arbitrary<CombineRowsCase> {
  return sums(sizes).chain(({ tokens, rows, columns, choices, seed }) =>
    fc.record({
      x: wideTensor([rows, columns]),
      rows: fc.constant(indices([tokens, choices], rows, seed)),
      weights: sometimes(wideTensor([tokens, choices])),
      outDtype: wideType(),
    }),
  );
}

/** Calls of `rowDots`. */
export function rowDotsCase(sizes: ExpertSizes = SMALL): fc.Arbitrary<RowDotsCase> {
  return sums(sizes).chain(({ tokens, rows, columns, choices, seed }) =>
    fc.record({
      grad: wideTensor([tokens, columns]),
      x: wideTensor([rows, columns]),
      rows: fc.constant(indices([tokens, choices], rows, seed)),
      outDtype: wideType(),
    }),
  );
}

const integerRows = ({ data, matrix: [rows, columns] }: PlainTensor<"i32">): number[][] =>
  Array.from({ length: rows }, (_, row) => Array.from(data.subarray(row * columns, (row + 1) * columns)));

const plainIndices = (shape: readonly number[], values: readonly number[]) =>
  new PlainTensor("i32", shape, Int32Array.from(values));

export const rowIdMapOperation: Operation<RowIdMapCase> = {
  arbitrary: rowIdMapCase(),
  run(backend, { routingMap, ...options }) {
    const { rows, sources, tokensPerExpert } = rowIdMap(upload(backend, routingMap), options);
    return {
      rows: download(rows),
      sources: download(sources),
      tokensPerExpert: download(tokensPerExpert),
    };
  },
  oracle({ routingMap, numExperts, numOutTokens, alignSize }) {
    const experts = numExperts ?? (routingMap.shape[1] as number);
    const { rows, sources, tokensPerExpert } = oracle.rowIdMap(integerRows(routingMap), {
      ...{ experts, indices: numExperts !== undefined, total: numOutTokens, align: alignSize },
    });
    return {
      rows: plainIndices(routingMap.shape, rows),
      sources: plainIndices([numOutTokens], sources),
      tokensPerExpert: plainIndices([experts], tokensPerExpert),
    };
  },
};

export const takeRowsOperation: Operation<TakeRowsCase> = {
  arbitrary: takeRowsCase(),
  run: (backend, { x, sources, weights, ...options }) => ({
    out: download(
      takeRows(upload(backend, x), upload(backend, sources), {
        ...options,
        weights: weights && upload(backend, weights),
      }),
    ),
  }),
  oracle({ x, sources, weights, entriesPerRow, outDtype }) {
    const [, columns] = x.matrix;
    const out = oracle.takeRows(rowsOf(x), columns, Array.from(sources.data), {
      period: entriesPerRow,
      weights: weights && Array.from(wideValues(weights)),
    });
    return { out: rounded(outDtype, [...sources.shape, columns], out.flat()) };
  },
};

export const combineRowsOperation: Operation<CombineRowsCase> = {
  arbitrary: combineRowsCase(),
  run: (backend, { x, rows, weights, outDtype }) => ({
    out: download(
      combineRows(upload(backend, x), upload(backend, rows), {
        outDtype,
        weights: weights && upload(backend, weights),
      }),
    ),
  }),
  oracle({ x, rows, weights, outDtype }) {
    const [, columns] = x.matrix;
    const out = oracle.combineRows(rowsOf(x), columns, integerRows(rows), weights && rowsOf(weights));
    return { out: rounded(outDtype, [rows.matrix[0], columns], out.flat()) };
  },
};

export const rowDotsOperation: Operation<RowDotsCase> = {
  arbitrary: rowDotsCase(),
  run: (backend, { grad, x, rows, outDtype }) => ({
    out: download(rowDots(upload(backend, grad), upload(backend, x), upload(backend, rows), { outDtype })),
  }),
  oracle: ({ grad, x, rows, outDtype }) => ({
    out: rounded(outDtype, rows.shape, oracle.rowDots(rowsOf(grad), rowsOf(x), integerRows(rows)).flat()),
  }),
};
