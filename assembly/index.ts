export { encode, encodeScalar } from "./cast/cast";
export { decode } from "./cast/decode";
export { sweep } from "./cast/sweep";
export { release, reserve } from "./core/memory";
export { columnSum, rowSum } from "./core/reduce";
export { scaleFromAmax } from "./core/scale";
export { activation, activationBackward } from "./elementwise/activation";
export { add } from "./elementwise/add";
export { clampedSwiglu, clampedSwigluBackward, gated, gatedBackward } from "./elementwise/gated";
export { scaled } from "./elementwise/scaled";
export { gemmEpilogue } from "./gemm/epilogue";
export { gemm, gemmScratch, gemmUnits } from "./gemm/gemm";
export {
  gemmBias,
  gemmDatapath,
  gemmOperand,
  gemmReduction,
  gemmScale,
  gemmScaling,
  gemmShape,
  gemmTarget,
} from "./gemm/task";
export { place, swapAxes, swizzle, transpose, transposePacked, unswizzle } from "./layout/layout";
export { amax } from "./quantize/amax";
export { quantizeColumns } from "./quantize/columns";
export { dequantizeColumns, dequantizeRows } from "./quantize/dequantize";
export { hadamard, hadamardAmax } from "./quantize/hadamard";
export { quantizeRows } from "./quantize/quantize";
export {
  quantizeDraws,
  quantizeLevels,
  quantizeRule,
  quantizeSource,
  quantizeTarget,
  quantizeTile,
} from "./quantize/task";
export { embedding, embeddingBackward, embeddingChains } from "./rows/embedding";
export { crossEntropy, crossEntropyBackward } from "./rows/loss";
export { mse, mseBackward } from "./rows/mse";
export { norm, normBackward, normParameters } from "./rows/norm";
export { softmax, softmaxBackward } from "./rows/softmax";
export { updateScales } from "./update/delayed-scaling";
export { clipFactor, squareSums } from "./update/grad-norm";
export { adamw, sgd } from "./update/optimizer";
