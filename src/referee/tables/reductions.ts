/** Rows of reductions. */
import { elementCount } from "../../tensor/shape.js";
import type { Call } from "../call.js";
import { hasBothZeros } from "../conversions.js";
import * as reductions from "../reductions/operators.js";
import { cumulativeSum } from "../reductions/scan.js";
import { computeRow, type OperatorRow, type OperatorRows, withWitness } from "./row.js";

/** A row that an H200 confirmed for inputs of up to 2^22 elements in row-major order. */
const comparedRow = (row: OperatorRow, inputs: string): OperatorRow => ({
  ...withWitness(row, inputs),
  dependsOnOrder: () => true,
  isCompared: (call) => elementCount(call.tensor("self").shape) <= 2 ** 22,
});

const SHAPES = "in shapes of up to 4 million elements, over one or several dimensions";

const SUM: OperatorRow = comparedRow(
  computeRow("self", "the sum in f32, in the order of Reduce.cuh, rounded once", reductions.sum),
  `376 calls in f32, bf16 and f16, ${SHAPES}`,
);

const MEAN: OperatorRow = comparedRow(
  computeRow("self", "the sum in f32 times the rounded 1 / n, rounded once", reductions.mean),
  `305 calls in f32, bf16 and f16, ${SHAPES}`,
);

/** A maximum depends on the order of the inputs only by the sign of a zero. */
const MAXIMUM = { dependsOnOrder: (call: Call) => hasBothZeros(call.backend, call.tensor("self")) } as const;

/** The row of the overload whose second argument is the list of dimensions. */
const dims = (row: OperatorRow): OperatorRow => ({ ...row, parameters: "self dim keepdim" });

/** Rows of reductions. */
export const REDUCTIONS: OperatorRows = {
  "aten::sum": SUM,
  "aten::sum.dim_IntList": dims(SUM),
  "aten::mean": MEAN,
  "aten::mean.dim": dims(MEAN),
  "aten::amax": {
    ...comparedRow(
      dims(computeRow("self", "the maximum, or NaN", reductions.amax)),
      `196 calls in f32, bf16 and f16, ${SHAPES}`,
    ),
    ...MAXIMUM,
  },
  "aten::max": {
    ...comparedRow(
      computeRow("self", "the maximum, or NaN", reductions.amax),
      "54 calls in f32, bf16 and f16, of up to 8 million elements",
    ),
    ...MAXIMUM,
  },
  "aten::linalg_vector_norm": comparedRow(
    computeRow(
      "self ord dim keepdim",
      "the sum of magnitudes, or the root of the sum of squares, in the order of sum",
      reductions.norm,
    ),
    `411 calls in f32, bf16 and f16, ${SHAPES}`,
  ),
  "aten::var_mean.correction": comparedRow(
    computeRow("self dim", "Welford's variance and mean", reductions.varianceAndMean),
    `148 calls in f32, bf16 and f16, ${SHAPES}`,
  ),
  "aten::logsumexp": comparedRow(
    dims(
      computeRow(
        "self",
        "log(sum(exp(self - m))) + m, m = amax(self), each step rounded to the dtype",
        reductions.logSumExp,
      ),
    ),
    `110 calls in f32, bf16 and f16, ${SHAPES}`,
  ),
  "aten::max.dim": comparedRow(
    dims(computeRow("self", "the first maximum or NaN, and its index", reductions.maximumAndIndex)),
    "83 calls in f32, bf16 and f16, of up to 4 million elements",
  ),
  "aten::cumsum": comparedRow(
    computeRow("self dim", "sums rounded to the dtype, in the order of CUB or ScanUtils.cuh", cumulativeSum),
    "41 calls in f32, bf16 and f16, along each of up to three dimensions",
  ),
};
