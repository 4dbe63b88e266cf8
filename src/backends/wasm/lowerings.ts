/** Every operation of the reference, by name. */

import { amax, decode, encode } from "./cast/cast.js";
import { sweep } from "./cast/sweep.js";
import { activation, activationBackward, gated, gatedBackward } from "./elementwise/activation.js";
import { add } from "./elementwise/add.js";
import { scaled } from "./elementwise/scaled.js";
import { gemm } from "./gemm/gemm.js";
import { relayout, swapAxes, transpose } from "./layout/layout.js";
import type { Lowerings } from "./lowering.js";
import { activationQuantize } from "./quantize/activation-quantize.js";
import { biasGradQuantize } from "./quantize/bias-grad-quantize.js";
import { dequantize } from "./quantize/dequantize.js";
import { hadamard } from "./quantize/hadamard.js";
import { normQuantize } from "./quantize/norm-quantize.js";
import { quantize } from "./quantize/quantize.js";
import { embedding, embeddingBackward } from "./rows/embedding.js";
import { crossEntropy, crossEntropyBackward, mse, mseBackward } from "./rows/loss.js";
import { columnSum, norm, normBackward } from "./rows/norm.js";
import { softmax, softmaxBackward } from "./rows/softmax.js";
import { updateScales } from "./update/delayed-scaling.js";
import { clipFactor, squareSum } from "./update/grad-norm.js";
import { adamw, sgd } from "./update/optimizer.js";

export const LOWERINGS: Lowerings = {
  activation,
  activationBackward,
  activationQuantize,
  adamw,
  add,
  amax,
  biasGradQuantize,
  clipFactor,
  columnSum,
  crossEntropy,
  crossEntropyBackward,
  decode,
  dequantize,
  embedding,
  embeddingBackward,
  encode,
  gated,
  gatedBackward,
  gemm,
  hadamard,
  mse,
  mseBackward,
  norm,
  normBackward,
  normQuantize,
  quantize,
  relayout,
  scaled,
  sgd,
  softmax,
  softmaxBackward,
  squareSum,
  swapAxes,
  sweep,
  transpose,
  updateScales,
};
