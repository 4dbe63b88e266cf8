export { activation, activationBackward } from "./activation";
export { add } from "./add";
export { amax } from "./amax";
export { encode, encodeScalar } from "./cast";
export { decode } from "./decode";
export { updateScales } from "./delayed-scaling";
export { dequantizeColumns, dequantizeRows } from "./dequantize";
export { embedding, embeddingBackward, embeddingChains } from "./embedding";
export { clampedSwiglu, clampedSwigluBackward, gated, gatedBackward } from "./gated";
export { gemm, gemmScratch, gemmUnits } from "./gemm";
export { gemmEpilogue } from "./gemm-epilogue";
export {
  gemmBias,
  gemmDatapath,
  gemmOperand,
  gemmReduction,
  gemmScale,
  gemmScaling,
  gemmShape,
  gemmTarget,
} from "./gemm-task";
export { clipFactor, squareSums } from "./grad-norm";
export { hadamard, hadamardAmax } from "./hadamard";
export { place, swapAxes, swizzle, transpose, transposePacked, unswizzle } from "./layout";
export { crossEntropy, crossEntropyBackward } from "./loss";
export { release, reserve } from "./memory";
export { mse, mseBackward } from "./mse";
export { norm, normBackward, normParameters } from "./norm";
export { adamw, sgd } from "./optimizer";
export { quantizeRows } from "./quantize";
export { quantizeColumns } from "./quantize-columns";
export { columnSum, rowSum } from "./reduce";
export { scaleFromAmax } from "./scale";
export { scaled } from "./scaled";
export { softmax, softmaxBackward } from "./softmax";
export { sweep } from "./sweep";
