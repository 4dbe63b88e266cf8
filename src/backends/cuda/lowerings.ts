/** Every operation of the CUDA backend, by name. */
import { activation, activationBackward, gated, gatedBackward } from "./activation.js";
import { activationQuantize } from "./activation-quantize.js";
import { add } from "./add.js";
import { amax, decode, encode } from "./cast.js";
import { updateScales } from "./delayed-scaling.js";
import { dequantize } from "./dequantize.js";
import { embedding, embeddingBackward } from "./embedding.js";
import { gemm } from "./gemm.js";
import { clipFactor, squareSum } from "./grad-norm.js";
import { hadamard } from "./hadamard.js";
import { relayout, swapAxes, transpose } from "./layout.js";
import { crossEntropy, crossEntropyBackward, mse, mseBackward } from "./loss.js";
import type { Lowerings } from "./lowering.js";
import { columnSum, norm, normBackward } from "./norm.js";
import { normQuantize } from "./norm-quantize.js";
import { adamw, sgd } from "./optimizer.js";
import { quantize } from "./quantize.js";
import { scaled } from "./scaled.js";
import { softmax, softmaxBackward } from "./softmax.js";
import { sweep } from "./sweep.js";

export const LOWERINGS: Lowerings = {
  activation,
  activationBackward,
  activationQuantize,
  adamw,
  add,
  amax,
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
