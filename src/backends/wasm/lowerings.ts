/** Every operation of the reference, by name. */
import { activation, activationBackward, gated, gatedBackward } from "./activation.js";
import { activationQuantize } from "./activation-quantize.js";
import { amax, decode, encode } from "./cast.js";
import { dequantize } from "./dequantize.js";
import { gemm } from "./gemm.js";
import { hadamard } from "./hadamard.js";
import { relayout, transpose } from "./layout.js";
import { crossEntropy, crossEntropyBackward } from "./loss.js";
import type { Lowerings } from "./lowering.js";
import { columnSum, norm, normBackward } from "./norm.js";
import { adamw, sgd } from "./optimizer.js";
import { quantize } from "./quantize.js";
import { sweep } from "./sweep.js";

export const LOWERINGS: Lowerings = {
  activation,
  activationBackward,
  activationQuantize,
  adamw,
  amax,
  columnSum,
  crossEntropy,
  crossEntropyBackward,
  decode,
  dequantize,
  encode,
  gated,
  gatedBackward,
  gemm,
  hadamard,
  norm,
  normBackward,
  quantize,
  relayout,
  sgd,
  sweep,
  transpose,
};
