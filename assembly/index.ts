export { activation, activationBackward } from "./activation";
export { amax, encode, encodeScalar } from "./cast";
export { decode } from "./decode";
export { clampedSwiglu, clampedSwigluBackward, gated, gatedBackward } from "./gated";
export { crossEntropy, crossEntropyBackward } from "./loss";
export { release, reserve } from "./memory";
export { norm, normBackward, normParameters } from "./norm";
export { columnSum } from "./reduce";
export { sweep } from "./sweep";
