export { amax, encode, encodeScalar } from "./cast";
export { release, reserve } from "./memory";
