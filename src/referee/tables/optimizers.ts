/** Rows of fused optimizers and of operators on lists of tensors. */
import type { Model } from "../call.js";
import { fma } from "../float32.js";
import * as lists from "../lists.js";
import * as optimizers from "../optimizers.js";
import { computeRow, type OperatorRow, type OperatorRows, withInPlaceVariant, withWitness } from "./row.js";

/** The row of an operator that the recorded calls in torch-operators/optimizers.json confirmed. */
function comparedRow(parameters: string, definition: string, model: Model): OperatorRow {
  const inputs = "lists of tensors of 33, 1,000 and 70,000 elements in f32 and bf16";
  return withWitness(computeRow(parameters, definition, model), inputs);
}

const ADAM = "self grads exp_avgs exp_avg_sqs max_exp_avg_sqs state_steps";

/** The rows of an operator's two overloads: one scalar for all tensors, and a list with one scalar for each tensor. */
function scalarRows(
  name: string,
  parameters: readonly [lists: string, scalar: string, scalars: string],
  definition: string,
  formula: Parameters<typeof lists.listModel>[1],
): OperatorRows {
  const [tensors, scalar, scalars] = parameters;
  const row = (scalarParameter: string): OperatorRow =>
    withInPlaceVariant(
      comparedRow(
        `${tensors} ${scalarParameter}`,
        definition,
        lists.listModel(tensors, formula, scalarParameter),
      ),
    );
  return {
    [`aten::_foreach_${name}.Scalar`]: row(scalar),
    [`aten::_foreach_${name}.ScalarList`]: row(scalars),
  };
}

/** The rows of a binary operator's overloads: a scalar, a list of scalars, a list of tensors, or one tensor as second operand. */
function binaryRows(
  name: string,
  definition: string,
  formula: (x: number, y: number, alpha: number) => number,
): OperatorRows {
  const pairs = lists.listModel("self other", (_, alpha) => (x, y) => formula(x, y, alpha));
  const byTensor = lists.listModel("self", (y, alpha) => (x) => formula(x, y, alpha), "other");
  return {
    ...scalarRows(name, ["self", "scalar", "scalars"], definition, (y, alpha) => (x) => formula(x, y, alpha)),
    [`aten::_foreach_${name}.List`]: withInPlaceVariant(comparedRow("self other alpha", definition, pairs)),
    [`aten::_foreach_${name}.Tensor`]: withInPlaceVariant(comparedRow("self other", definition, byTensor)),
  };
}

/** Rows of fused optimizers and of operators on lists of tensors. */
export const OPTIMIZERS: OperatorRows = {
  "aten::_fused_adamw_": comparedRow(
    ADAM,
    "AdamW in f32, with an fma for each decay and average",
    optimizers.adam(true),
  ),
  "aten::_fused_adam_": {
    ...comparedRow(ADAM, "Adam in f32, with an fma for each decay and average", optimizers.adam(false)),
    isCompared: optimizers.isComparedAdam,
  },
  "aten::_fused_sgd_": comparedRow(
    "self grads momentum_buffer_list",
    "SGD in f32, with an fma for the decay, the momentum and the step",
    optimizers.sgd,
  ),
  "aten::_foreach_norm.Scalar": comparedRow(
    "self ord dtype",
    "the norm of each tensor in f32, chunks of 65,536 elements by 512 threads each",
    lists.norms,
  ),
  ...binaryRows("mul", "self * other in f32, rounded once, for each tensor", (x, y) => x * y),
  ...binaryRows("add", "fma(other, alpha, self), rounded once, for each tensor", (x, y, alpha) =>
    fma(y, alpha, x),
  ),
  ...binaryRows("div", "self / other in f32, rounded once, for each tensor", (x, y) => x / y),
  "aten::_foreach_div.Scalar": withInPlaceVariant(
    comparedRow(
      "self scalar",
      "self times the reciprocal, which is rounded to f32 first, for each tensor",
      lists.listModel("self", (y) => (x) => x * Math.fround(1 / y), "scalar"),
    ),
  ),
  ...scalarRows(
    "lerp",
    ["self tensors1", "weight", "weight"],
    "lerp of each tensor, rounded once",
    lists.listLerp,
  ),
  ...scalarRows(
    "addcmul",
    ["self tensor1 tensor2", "value", "scalars"],
    "addcmul of each tensor, rounded once",
    lists.listAddcmul,
  ),
  ...scalarRows(
    "addcdiv",
    ["self tensor1 tensor2", "value", "scalars"],
    "addcdiv of each tensor, rounded once",
    lists.listAddcdiv,
  ),
  "aten::_foreach_sqrt": withInPlaceVariant(
    comparedRow("self", "sqrtf of each element, rounded once, for each tensor", lists.squareRoots),
  ),
};
