/** The arguments of operations on rows, and their tensors. */
import type { WideDType } from "../../tensor/shape.js";
import type { Tensor } from "../../tensor/tensor.js";
import { GRAD, OUT, type Tensors, X } from "../tensors.js";

export const STATISTICS = { rstd: "f32", "mean?": "f32" } as const;
export const NORM = { ...X, gamma: "checked", "beta?": "checked" } as const;
const LOGITS = { logits: "checked", targets: "checked" } as const;

/** The sizes and the elements of the logits, seen as rows. */
const LOGIT_ROWS = {
  rows: "logits.rows",
  columns: "logits.columns",
  logits: ["wide", "rows * columns"],
} as const;

/** The arguments of the kernels of cross-entropy and its gradient. */
const LOSS = {
  ...LOGIT_ROWS,
  targets: ["i32", "rows"],
  smoothing: "float",
  ignore: "int",
} as const;

/** The sizes and the elements of x, seen as rows. */
const ROWS = { rows: "x.rows", columns: "x.columns", x: ["wide", "rows * columns"] } as const;

/** The arguments of the kernels of the mean squared error and its gradient. */
const PAIR = { ...ROWS, target: ["wide", "rows * columns"] } as const;

/** Arguments of `norm`: LayerNorm of the rows of x or, without `beta` and `mean`, RMSNorm. */
export interface NormArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** The factor of each column, [K]. */
  readonly gamma: Tensor<WideDType>;
  /** The addend of each column, [K], in the dtype of gamma. Absent for RMSNorm. */
  readonly beta?: Tensor<WideDType> | undefined;
  /** An f32 value that is added to the variance or, for RMSNorm, to the mean square. */
  readonly eps: number;
  /** Whether the tensor `gamma` holds gamma - 1. */
  readonly zeroCenteredGamma: boolean;
  /** Output: the normalized rows, in the shape of x. */
  readonly out: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. Absent for RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** Output: 1 / sqrt(variance + eps) of each row, [rows]; for RMSNorm, the mean square takes the place of the variance. */
  readonly rstd: Tensor<"f32">;
}

/** Computes LayerNorm or RMSNorm. */
export const norm: Tensors<NormArgs> = { writes: { out: "wide", ...STATISTICS }, reads: NORM };

/** Arguments of `normBackward`, which computes the gradients of a norm. */
export interface NormBackwardArgs {
  /** The gradient of the norm's result, in the shape of x. */
  readonly grad: Tensor<WideDType>;
  /** The input of the forward pass, [..., K]. */
  readonly x: Tensor<WideDType>;
  /** The gamma of the forward pass, [K]. */
  readonly gamma: Tensor<WideDType>;
  /** Whether the tensor `gamma` holds gamma - 1. */
  readonly zeroCenteredGamma: boolean;
  /** The mean of each row from the forward pass, [rows]. Absent for RMSNorm. */
  readonly mean?: Tensor<"f32"> | undefined;
  /** The `rstd` of each row from the forward pass, [rows]. */
  readonly rstd: Tensor<"f32">;
  /** Output: the gradient of x, in the shape of x. */
  readonly dx: Tensor<WideDType>;
  /** Output: the gradient of gamma, [K]. */
  readonly dgamma: Tensor<WideDType>;
  /** Output: the gradient of beta, [K]. Absent for RMSNorm. */
  readonly dbeta?: Tensor<WideDType> | undefined;
}

/** Computes the gradients of a norm's input and parameters. */
export const normBackward: Tensors<NormBackwardArgs> = {
  writes: { dx: "wide", dgamma: "wide", "dbeta?": "wide" },
  reads: { ...STATISTICS, ...GRAD, ...X, gamma: "checked" },
};

/**
 * Arguments of `columnSum`: out [K] = the sums of x's columns in f32. Each chunk of 32 rows is summed in ascending order; then
 * the sums of the chunks are added in ascending order.
 */
export interface ColumnSumArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** Output: the sums, rounded once to the dtype of out. They are 0 if there are no rows. */
  readonly out: Tensor<WideDType>;
}

/** Sums columns. */
export const columnSum: Tensors<ColumnSumArgs> = OUT;

/**
 * Arguments of `crossEntropy`: the softmax cross-entropy of each row of logits, and the statistics that the backward pass
 * needs.
 */
export interface CrossEntropyArgs {
  /** The logits, [..., V], seen as rows of V elements. */
  readonly logits: Tensor<WideDType>;
  /** The class index of each row, [rows]. An index outside 0 to V - 1 that is not `ignore` makes the row's loss NaN. */
  readonly targets: Tensor<"i32">;
  /** The weight of the uniform distribution in the target distribution, 0 to 1. */
  readonly smoothing: number;
  /** A target value whose rows have loss 0 and gradient 0. */
  readonly ignore: number;
  /** Output: the loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
  /** Output of the forward pass, input of the backward pass: the maximum logit of each row, [rows]. */
  readonly maximum: Tensor<"f32">;
  /** Output of the forward pass, input of the backward pass: the sum of exp(x - maximum) of each row, [rows]. */
  readonly total: Tensor<"f32">;
}

/** Computes the softmax cross-entropy of rows. */
export const crossEntropy: Tensors<CrossEntropyArgs> = {
  writes: { loss: "f32", maximum: "f32", total: "f32" },
  reads: LOGITS,
  lowering: {
    takes: { ...LOSS, loss: ["f32", "rows"], maximum: ["f32", "rows"], total: ["f32", "rows"] },
    each: "rows",
    weight: "columns * 8",
  },
};

/**
 * Arguments of `crossEntropyBackward`: dx = the gradient of the logits, given the gradient of each row's loss. The columns of the
 * logits may be a subset of all classes.
 */
export interface CrossEntropyBackwardArgs extends Omit<CrossEntropyArgs, "loss"> {
  /** The class of the first column. */
  readonly first: number;
  /** The number of all classes. */
  readonly classes: number;
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of the logits, in their shape. */
  readonly dx: Tensor<WideDType>;
}

/** Computes the gradient of the logits of `crossEntropy`. */
export const crossEntropyBackward: Tensors<CrossEntropyBackwardArgs> = {
  writes: { dx: "wide" },
  reads: { grad: "f32", maximum: "f32", total: "f32", ...LOGITS },
  lowering: {
    takes: {
      ...LOSS,
      maximum: ["f32", "rows"],
      total: ["f32", "rows"],
      grad: ["f32", "rows"],
      first: "count",
      classes: "count",
      dx: ["wide", "rows * columns"],
    },
    each: "rows",
    weight: "columns * 8",
  },
};

/** Arguments of `lossMaximum`: the maximum of each row of logits. */
export interface LossMaximumArgs extends Pick<CrossEntropyArgs, "logits"> {
  /** Output: the maximum of each row, [rows]; -infinity for a row without numbers. */
  readonly maximum: Tensor<"f32">;
}

/** Finds the maximum of rows of logits. */
export const lossMaximum: Tensors<LossMaximumArgs> = {
  writes: { maximum: "f32" },
  reads: { logits: "checked" },
  lowering: { takes: { ...LOGIT_ROWS, maximum: ["f32", "rows"] }, each: "rows", weight: "columns" },
};

/**
 * Arguments of `lossSums`: the sums over the columns of `logits`, a subset of all classes, from which the losses of rows are
 * computed.
 */
export interface LossSumsArgs extends Pick<CrossEntropyArgs, "logits" | "targets"> {
  /** The class of the first column. */
  readonly first: number;
  /** The maximum of each row over all classes, [rows]. */
  readonly maximum: Tensor<"f32">;
  /**
   * Output, [2, rows] or [3, rows]: the sum of exp(x - maximum); x - maximum of the target, or -0 if the target is not among the
   * columns; and with 3 rows, the sum of x - maximum.
   */
  readonly sums: Tensor<"f32">;
}

/** Computes the sums of the cross-entropy of rows over some of the classes. */
export const lossSums: Tensors<LossSumsArgs> = {
  writes: { sums: "f32" },
  reads: { maximum: "f32", ...LOGITS },
};

/** Arguments of `lossOfSums`: the loss of each row, from the results of `lossSums` summed over all classes. */
export interface LossOfSumsArgs extends Pick<CrossEntropyArgs, "targets" | "smoothing" | "ignore"> {
  /** [2, rows], or [3, rows] with smoothing. */
  readonly sums: Tensor<"f32">;
  /** The number of all classes. */
  readonly classes: number;
  /** Output: the loss of each row, [rows]. */
  readonly loss: Tensor<"f32">;
}

/** Computes the cross-entropy of rows from sums over all classes. */
export const lossOfSums: Tensors<LossOfSumsArgs> = {
  writes: { loss: "f32" },
  reads: { sums: "f32", targets: "checked" },
};

/** Arguments of `mse`: loss [rows] = the mean of (x - target)^2 over each row. */
export interface MseArgs {
  /** The input, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** The target, in the shape of x. */
  readonly target: Tensor<WideDType>;
  /** Output: the mean of each row, [rows]. */
  readonly loss: Tensor<"f32">;
}

/** Computes the mean squared error of rows. */
export const mse: Tensors<MseArgs> = {
  writes: { loss: "f32" },
  reads: { ...X, target: "checked" },
  lowering: { takes: { ...PAIR, loss: ["f32", "rows"] }, each: "rows", weight: "columns" },
};

/** Arguments of `mseBackward`: dx = the gradient of x, given the gradient of each row's loss. */
export interface MseBackwardArgs extends Omit<MseArgs, "loss"> {
  /** The gradient of each row's loss, [rows]. */
  readonly grad: Tensor<"f32">;
  /** Output: the gradient of x, in its shape. */
  readonly dx: Tensor<WideDType>;
}

/** Computes the gradient of the first argument of `mse`. */
export const mseBackward: Tensors<MseBackwardArgs> = {
  writes: { dx: "wide" },
  reads: { grad: "f32", ...X, target: "checked" },
  lowering: {
    takes: { ...PAIR, grad: ["f32", "rows"], dx: ["wide", "rows * columns"] },
    each: "rows",
    weight: "columns",
  },
};

/**
 * Arguments of `embedding`: out [..., D] = the rows of table [V, D] whose indices are ids. The table may be a part of a larger
 * one with `whole` rows. An id outside 0 to whole - 1 gives a row of NaN; an id of another part gives a row of -0.
 */
export interface EmbeddingArgs {
  /** The table, [V, D]. */
  readonly table: Tensor<WideDType>;
  /** The row indices, in any shape. */
  readonly ids: Tensor<"i32">;
  /** The id of the first row of the table. */
  readonly first: number;
  /** The number of all ids. */
  readonly whole: number;
  /** Output: the rows, [..., D], rounded to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Looks up rows of a table by index. */
export const embedding: Tensors<EmbeddingArgs> = {
  writes: { out: "wide" },
  reads: { table: "checked", ids: "checked" },
  lowering: {
    takes: {
      count: "ids.size",
      vocabulary: "table.rows",
      first: "count",
      whole: "count",
      columns: "table.columns",
      table: ["wide", "vocabulary * columns"],
      ids: ["i32", "count"],
      out: ["wide", "count * columns"],
    },
    each: "count",
    weight: "columns",
  },
};

/**
 * Arguments of `embeddingBackward`: row v of out [V, D] is the sum of those rows of grad whose id is first + v, in ascending
 * order, in f32.
 */
export interface EmbeddingBackwardArgs {
  /** The gradient of the looked-up rows, [..., D]. */
  readonly grad: Tensor<WideDType>;
  /** The row indices of the forward pass. Indices outside the table are ignored. */
  readonly ids: Tensor<"i32">;
  /** The id of the first row of the table. */
  readonly first: number;
  /** Output: the gradient of the table, [V, D]. */
  readonly out: Tensor<WideDType>;
}

/** Computes the gradient of the table of `embedding`. */
export const embeddingBackward: Tensors<EmbeddingBackwardArgs> = {
  writes: { out: "wide" },
  reads: { ...GRAD, ids: "checked" },
};

/** Arguments of `gather`: out[r, j] = x[r, ids[r, j]]. */
export interface GatherArgs {
  /** The elements, [rows, C]. */
  readonly x: Tensor<WideDType>;
  /** The indices, [rows, k]. One outside 0 to C - 1 gives NaN. */
  readonly ids: Tensor<"i32">;
  /** Output: the elements at these indices, [rows, k], rounded to the dtype of out. */
  readonly out: Tensor<WideDType>;
}

/** Takes elements of rows by index. */
export const gather: Tensors<GatherArgs> = {
  writes: { out: "wide" },
  reads: { ...X, ids: "checked" },
  lowering: {
    takes: {
      rows: "out.rows",
      columns: "x.columns",
      count: "out.columns",
      x: ["wide", "rows * columns"],
      ids: ["i32", "rows * count"],
      out: ["wide", "rows * count"],
    },
    each: "rows",
    weight: "4 * count",
  },
};

/** Arguments of `gatherBackward`: out[r, c] is the sum of those grad[r, j] whose index ids[r, j] is c, ascending, in f32. */
export interface GatherBackwardArgs {
  /** The gradient of the result, [rows, k]. */
  readonly grad: Tensor<WideDType>;
  /** The indices of the forward pass, [rows, k]. Indices outside 0 to C - 1 are ignored. */
  readonly ids: Tensor<"i32">;
  /** Output: the gradient of x, [rows, C]. */
  readonly out: Tensor<WideDType>;
}

/** Computes the gradient of the argument of `gather`. */
export const gatherBackward: Tensors<GatherBackwardArgs> = {
  writes: { out: "wide" },
  reads: { ...GRAD, ids: "checked" },
  lowering: {
    takes: {
      rows: "out.rows",
      columns: "out.columns",
      count: "ids.columns",
      grad: ["wide", "rows * count"],
      ids: ["i32", "rows * count"],
      out: ["wide", "rows * columns"],
    },
    each: "rows",
    weight: "columns * (count + 1)",
  },
};

/** Arguments of `cumsum`: out[r, i] is the sum of x[r, j] over j <= i or, reversed, over j >= i. */
export interface CumsumArgs {
  /** The terms, [..., K], seen as rows of K elements. */
  readonly x: Tensor<WideDType>;
  /** Whether the sums begin at the last element of a row. */
  readonly reverse: boolean;
  /** Output: the sums in f32, each rounded to the dtype of out, in the shape of x. */
  readonly out: Tensor<WideDType>;
}

/** Computes the cumulative sums of rows. */
export const cumsum: Tensors<CumsumArgs> = {
  ...OUT,
  lowering: {
    takes: { ...ROWS, reverse: "flag", out: ["wide", "rows * columns"] },
    each: "rows",
    weight: "2 * columns",
  },
};

/** Arguments of `softmax`: out = the softmax of scale * x over the last dimension of x [..., R, C]. */
export interface SoftmaxArgs {
  /** The input, [..., R, C]. */
  readonly x: Tensor<WideDType>;
  /** The factor of x, an f32 value. */
  readonly scale: number;
  /** Whether the elements of row i beyond column i + (C - R) are masked. */
  readonly causal: boolean;
  /** Output: the softmax, in the shape of x. A masked element is 0. */
  readonly out: Tensor<WideDType>;
}

/** Computes the softmax over the last dimension. */
export const softmax: Tensors<SoftmaxArgs> = OUT;

/** Arguments of `softmaxBackward`: dx = the gradient of x, given y = softmax(x) and the gradient of y. */
export interface SoftmaxBackwardArgs extends Pick<SoftmaxArgs, "scale" | "causal"> {
  /** The gradient of y, in the shape of y. */
  readonly grad: Tensor<WideDType>;
  /** The result y of the forward pass. */
  readonly y: Tensor<WideDType>;
  /** Output: the gradient of x, in the shape of y. */
  readonly dx: Tensor<WideDType>;
}

/** Computes the gradient of the argument of `softmax`. */
export const softmaxBackward: Tensors<SoftmaxBackwardArgs> = {
  writes: { dx: "wide" },
  reads: { ...GRAD, y: "checked" },
};
