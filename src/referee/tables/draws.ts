/** Rows of operators that draw random numbers. */
import type { Call } from "../call.js";
import * as draws from "../draws.js";
import { computeRow, type OperatorRow, type OperatorRows, withWitness } from "./row.js";

const comparedRow = (row: OperatorRow, inputs: string, isCompared: (call: Call) => boolean): OperatorRow => ({
  ...withWitness(row, inputs),
  isCompared,
});

/** Rows of operators that draw random numbers. */
export const DRAWS: OperatorRows = {
  "aten::native_dropout": {
    ...comparedRow(
      computeRow(
        "input p train",
        "self * mask * (1 / (1 - p)) in f32, rounded once; the mask by Philox 4x32-10",
        draws.dropout,
      ),
      "18 masks and results of up to 300,000 elements in f32, bf16 and f16",
      draws.isComparedDropout,
    ),
    drawn: 1,
  },
  "aten::bernoulli.p": comparedRow(
    computeRow(
      "self p generator",
      "1 where a uniform number is less than p, by Philox 4x32-10",
      draws.bernoulli,
    ),
    "1,000 numbers in f32, bf16 and f16 each",
    draws.isComparedProbability,
  ),
  "aten::rand": comparedRow(
    computeRow("size", "uniform numbers in [0, 1) by Philox 4x32-10", draws.rand),
    "9 draws of up to 300,000 numbers in f32, bf16 and f16",
    draws.isComparedSize,
  ),
  "aten::randn": comparedRow(
    computeRow("size", "normal numbers by Philox 4x32-10, logf, sin.approx and cos.approx", draws.randn),
    "9 draws of up to 300,000 numbers in f32, bf16 and f16",
    draws.isComparedSize,
  ),
};
