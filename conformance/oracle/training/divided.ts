/** A model of products divided among ranks: each rank's part of K, and the order in which the partial sums are added. */
import { rankedSum } from "../collective/collective.js";
import { cast, columnSums, type Matrix, matrix, ofRows, sum } from "./matrix.js";
import { type Operand, type ProductOptionsModel, product } from "./products.js";

/** How a layer is divided among ranks. */
export interface DivisionModel {
  readonly ranks: number;
  readonly mode: "column" | "row";
  /** The number of tensors that are concatenated along the columns of the result. Each of them is divided separately. */
  readonly pieces: number;
  /** Whether activations that are not divided by columns are divided by rows (sequence parallelism). */
  readonly sequence: boolean;
}

/**
 * The indices from 0 to count - 1 that belong to a rank. The range consists of `pieces` equal pieces, each divided among the
 * ranks.
 */
export function rankIndices(
  { ranks, pieces }: DivisionModel,
  rank: number,
  count: number,
): readonly number[] {
  const [piece, each] = [count / pieces, count / pieces / ranks];
  return Array.from(
    { length: count / ranks },
    (_, i) => Math.floor(i / each) * piece + rank * each + (i % each),
  );
}

/** The sum over ranks of their partial products. Each partial product and the sum are rounded to `dtype`. */
export function dividedProduct(
  a: Operand,
  b: Operand,
  joined: ProductOptionsModel,
  divided: DivisionModel,
  dtype: Matrix["dtype"],
): Matrix {
  const columns = a.lines.length;
  const depth = a.lines[0]?.length ?? 0;
  const partialSums = Array.from({ length: divided.ranks }, (_, rank) => {
    const places = rankIndices(divided, rank, depth);
    return ofRows(product(along(a, places), along(b, places), joined), columns, dtype);
  });
  return sumParts(partialSums, dtype);
}

/** The column sums of each rank's rows in f32, added over ranks. */
export function dividedSums(x: Matrix, ranks: number, dtype: Matrix["dtype"]): Matrix {
  return summedRows(x, ranks, (rows) => columnSums(rows, "f32"), dtype);
}

/** The f32 results of `f` for each rank's rows, and their sum, rounded to `dtype`. */
export function summedRows(
  x: Matrix,
  ranks: number,
  f: (rows: Matrix, rank: number) => Matrix,
  dtype: Matrix["dtype"],
): Matrix {
  return sumParts(
    Array.from({ length: ranks }, (_, rank) => f(rankRows(x, ranks, rank), rank)),
    dtype,
  );
}

/** The rows of one rank. */
export function rankRows(
  { data, shape: [rows, columns], dtype }: Matrix,
  ranks: number,
  rank: number,
): Matrix {
  const rankElements = (rows / ranks) * columns;
  return {
    data: data.slice(rank * rankElements, (rank + 1) * rankElements),
    shape: [rows / ranks, columns],
    dtype,
  };
}

/** Adds a row to every row of x, in f32. */
export function withBias(x: Matrix, bias: Matrix | undefined): Matrix {
  if (!bias) return x;
  return sum(
    x,
    matrix(x.shape, "f32", (_, j) => bias.data[j] as number),
  );
}

function sumParts(partialSums: readonly Matrix[], dtype: Matrix["dtype"]): Matrix {
  const [first] = partialSums as [Matrix];
  const data = Float32Array.from(
    rankedSum(
      partialSums.map((part) => part.data),
      (x) => x,
    ),
  );
  return cast({ data, shape: first.shape, dtype: "f32" }, dtype);
}

function along({ lines, blocks, ...otherFields }: Operand, places: readonly number[]): Operand {
  const slicedLines = lines.map((line) => places.map((k) => line[k] as number));
  if (!blocks) return { ...otherFields, lines: slicedLines };
  return {
    ...otherFields,
    lines: slicedLines,
    blocks: { ...blocks, scale: (line, k) => blocks.scale(line, places[k] as number) },
  };
}
