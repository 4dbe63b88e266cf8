/** The arguments of operations on the rows of experts, and their tensors. */
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { GRAD, type Tensors, X } from "../tensors.js";

/** The tensors that say which row of the permuted tokens belongs to which entry of a routing map [T, C]. */
export interface RowIdMapOutputs {
  /** Output: the row of each entry, [T, C]; -1 for an entry without a row. */
  readonly rows: Tensor<"i32">;
  /** Output: the entry t * C + c of each row, [N]; -1 for padding. */
  readonly sources: Tensor<"i32">;
  /** Output: the number of rows of each expert, padding included, [E]. */
  readonly tokensPerExpert: Tensor<"i32">;
}

/**
 * Arguments of `rowIdMap`, which assigns rows to the entries of a routing map: ordered by expert, and by entry for each expert.
 */
export interface RowIdMapArgs extends RowIdMapOutputs {
  /** The routing map, [T, C]: one flag for each token and expert, or the indices of each token's experts. */
  readonly routingMap: Tensor<"i32">;
  /** Whether entries are indices of experts. Otherwise entry (t, e) is nonzero if token t is routed to expert e. */
  readonly indices: boolean;
  /** The rows of each expert are padded to a multiple of this number. */
  readonly align: number;
}

/** Assigns rows to the tokens of experts. */
export const rowIdMap: Tensors<RowIdMapArgs> = {
  writes: { rows: "i32", sources: "i32", tokensPerExpert: "i32" },
  reads: { routingMap: "checked" },
};

/** Arguments of `takeRows`: out[n] = x[floor(sources[n] / period)] * weights[sources[n]]. */
export interface TakeRowsArgs {
  /** The rows, [R, D]. */
  readonly x: Tensor<WideDType>;
  /** The entry of each row of the result, [N]. An entry outside 0 to R * period - 1 gives a row of +0. */
  readonly sources: Tensor<"i32">;
  /** The number of entries of a row of x. */
  readonly period: number;
  /** The factor of each entry, [R * period]. Absent: the rows are copied. */
  readonly weights?: Tensor<WideDType> | undefined;
  /** Output: [N, D], rounded once to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Takes rows by index, with zeros for padding. */
export const takeRows: Tensors<TakeRowsArgs> = {
  writes: { out: "wide" },
  reads: { ...X, sources: "checked", "weights?": "checked" },
};

/** Arguments of `combineRows`: out[t] is the sum of x[rows[t, c]] * weights[t, c] in ascending order of c, in f32. */
export interface CombineRowsArgs {
  /** The rows, [N, D]. */
  readonly x: Tensor<WideDType>;
  /** The row of each entry, [T, C]. Entries outside 0 to N - 1 are ignored. */
  readonly rows: Tensor<"i32">;
  /** The factor of each entry, [T, C]. Absent: 1. */
  readonly weights?: Tensor<WideDType> | undefined;
  /** Output: [T, D], rounded once to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Adds rows by index. */
export const combineRows: Tensors<CombineRowsArgs> = {
  writes: { out: "wide" },
  reads: { ...X, rows: "checked", "weights?": "checked" },
  lowering: {
    takes: {
      tokens: "rows.rows",
      width: "rows.columns",
      limit: "x.rows",
      columns: "x.columns",
      x: ["wide", "limit * columns"],
      rows: ["i32", "tokens * width"],
      "weights?": ["wide", "tokens * width"],
      out: ["wide", "tokens * columns"],
    },
    each: "tokens",
    weight: "columns * (width + 1)",
  },
};

/** Arguments of `rowDots`: out[t, c] = the dot product of grad[t] and x[rows[t, c]]. */
export interface RowDotsArgs {
  /** [T, D] */
  readonly grad: Tensor<WideDType>;
  /** The rows, [N, D]. */
  readonly x: Tensor<WideDType>;
  /** The row of each entry, [T, C]. An entry outside 0 to N - 1 gives +0. */
  readonly rows: Tensor<"i32">;
  /** Output: [T, C], rounded once to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Computes dot products of rows by index. */
export const rowDots: Tensors<RowDotsArgs> = {
  writes: { out: "wide" },
  reads: { ...GRAD, ...X, rows: "checked" },
  lowering: {
    takes: {
      tokens: "rows.rows",
      width: "rows.columns",
      limit: "x.rows",
      columns: "x.columns",
      grad: ["wide", "tokens * columns"],
      x: ["wide", "limit * columns"],
      rows: ["i32", "tokens * width"],
      out: ["wide", "tokens * width"],
    },
    each: "tokens",
    weight: "columns * width * 2",
  },
};

/** Arguments of `topk`: the k largest elements of each row of x. */
export interface TopkArgs {
  /** The elements, [T, E]. */
  readonly x: Tensor<WideDType>;
  /** The number of groups of neighbouring elements. It divides E. */
  readonly groups: number;
  /** The number of groups whose elements can be chosen. */
  readonly groupTopk: number;
  /** Output: the indices of the chosen elements, the largest first, [T, k]. */
  readonly indices: Tensor<"i32">;
  /** Output: 1 for each chosen element, 0 for the others, [T, E]. */
  readonly routingMap: Tensor<"i32">;
  /** Output: `routingMap` as f32, [T, E]. */
  readonly mask: Tensor<"f32">;
}

/** Finds the largest elements of rows. */
export const topk: Tensors<TopkArgs> = {
  writes: { indices: "i32", routingMap: "i32", mask: "f32" },
  reads: X,
};
