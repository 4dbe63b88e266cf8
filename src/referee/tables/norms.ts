/** Rows of norms. */
import type { Call } from "../call.js";
import { layerNormBackward, rmsNormBackward } from "../norms/backward.js";
import { layerNorm, rmsNorm } from "../norms/forward.js";
import { computeRow, H200, type OperatorRows, withWitness } from "./row.js";

const FORWARD =
  "192 tensors in f32, bf16 and f16 with rows of 1 to 50,257 elements, half of them without weights";

const COMPARED_GRADIENTS = {
  witness: {
    ...H200,
    inputs: "58 calls in f32 and bf16 with rows of 1 to 50,257 elements, all with weights",
  },
  isCompared: (call: Call) => call.tensor("input").dtype !== "F16",
};

/** Rows of norms. */
export const NORMS: OperatorRows = {
  "aten::native_layer_norm": withWitness(
    computeRow(
      "input normalized_shape weight bias eps",
      "(input - mean) * rsqrtf(variance + eps) * weight + bias in f32, with moments by Welford's method",
      layerNorm,
    ),
    FORWARD,
  ),
  "aten::_fused_rms_norm": withWitness(
    computeRow(
      "input normalized_shape weight eps",
      "input * rsqrtf(mean of squares + eps) * weight in f32",
      rmsNorm,
    ),
    FORWARD,
  ),
  "aten::native_layer_norm_backward": {
    ...computeRow(
      "grad_out input normalized_shape mean rstd weight bias output_mask",
      "gradients of input, weight and bias in f32, in the order of layer_norm_kernel.cu, each rounded once",
      layerNormBackward,
    ),
    ...COMPARED_GRADIENTS,
  },
  "aten::_fused_rms_norm_backward": {
    ...computeRow(
      "grad_out input normalized_shape rstd weight output_mask",
      "gradients of input and weight in f32, in the order of layer_norm_kernel.cu, each rounded once",
      rmsNormBackward,
    ),
    ...COMPARED_GRADIENTS,
  },
};
