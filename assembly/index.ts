export { activation, activationBackward } from "./activation";
export { amax } from "./amax";
export { encode, encodeScalar } from "./cast";
export { decode } from "./decode";
export { dequantizeColumns, dequantizeRows } from "./dequantize";
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
export { hadamard, hadamardAmax } from "./hadamard";
export { place, swizzle, transpose, transposePacked, unswizzle } from "./layout";
export { crossEntropy, crossEntropyBackward } from "./loss";
export { release, reserve } from "./memory";
export { norm, normBackward, normParameters } from "./norm";
export { adamw, sgd } from "./optimizer";
export { quantizeRows } from "./quantize";
export { quantizeColumns } from "./quantize-columns";
export { columnSum } from "./reduce";
export { scaleFromAmax } from "./scale";
export { sweep } from "./sweep";
