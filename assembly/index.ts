export { activation, activationBackward } from "./activation";
export { amax, encode, encodeScalar } from "./cast";
export { clampedSwiglu, clampedSwigluBackward, gated, gatedBackward } from "./gated";
export { crossEntropy, crossEntropyBackward } from "./loss";
export { release, reserve } from "./memory";
export { norm, normBackward, normParameters } from "./norm";
export { columnSum } from "./reduce";
