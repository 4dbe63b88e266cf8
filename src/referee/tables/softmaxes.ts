/** Rows of softmax and of losses. */
import type { Call } from "../call.js";
import { hasNoIgnoredRow, nllLoss, nllLossBackward } from "../losses.js";
import { softmax, softmaxBackward } from "../softmax.js";
import { computeRow, type OperatorRows, withWitness } from "./row.js";

const FORWARD =
  "154 tensors in f32, bf16 and f16 with rows of 1 to 1,048,576 elements, 18 of them along dimension 0";
const BACKWARD =
  "102 tensors in f32, bf16 and f16 with rows of 1 to 1,048,576 elements, along the last dimension";

/** Whether a gradient is of a kind that was compared: along the last dimension, in the dtype of the input. */
const isComparedGradient = (call: Call): boolean => {
  const { shape, dtype } = call.tensor("output");
  const isLastDim = call.dimension("dim", shape) === Math.max(shape.length, 1) - 1;
  return isLastDim && dtype === (call.dtype("input_dtype") ?? dtype);
};

/** Rows of softmax and of losses. */
export const SOFTMAXES: OperatorRows = {
  "aten::_softmax": withWitness(
    computeRow(
      "self dim half_to_float",
      "expf(self - max) / their sum, in f32, rounded once to the dtype",
      softmax(false),
    ),
    FORWARD,
  ),
  "aten::_log_softmax": withWitness(
    computeRow(
      "self dim half_to_float",
      "self - max - logf(sum of expf(self - max)), in f32, rounded once to the dtype",
      softmax(true),
    ),
    FORWARD,
  ),
  "aten::_softmax_backward_data": {
    ...withWitness(
      computeRow(
        "grad_output output dim input_dtype",
        "fma(-output, sum of g, g) with g = grad_output * output",
        softmaxBackward(false),
      ),
      BACKWARD,
    ),
    isCompared: isComparedGradient,
  },
  "aten::_log_softmax_backward_data": {
    ...withWitness(
      computeRow(
        "grad_output output dim input_dtype",
        "fma(-expf(output), sum of grad_output, grad_output)",
        softmaxBackward(true),
      ),
      BACKWARD,
    ),
    isCompared: isComparedGradient,
  },
  "aten::nll_loss_forward": {
    ...withWitness(
      computeRow(
        "self target weight reduction ignore_index",
        "-self at each class, their sum or mean in f32, rounded once to the dtype",
        nllLoss,
      ),
      "63 calls in f32, bf16 and f16 of 1 to 4096 rows, none of them ignored, with each reduction",
    ),
    isCompared: hasNoIgnoredRow,
  },
  "aten::nll_loss_backward": {
    ...withWitness(
      computeRow(
        "grad_output self target weight reduction ignore_index total_weight",
        "-grad_output / total_weight at each class, else +0",
        nllLossBackward,
      ),
      "21 means in f32, bf16 and f16 of 1 to 4096 rows, none of them ignored",
    ),
    isCompared: (call) => call.get("reduction") === 1 && hasNoIgnoredRow(call),
  },
};
