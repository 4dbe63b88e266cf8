/** Every operation of the reference, by name. */
import { activation, activationBackward, gated, gatedBackward } from "./activation.js";
import { amax, encode } from "./cast.js";
import type { Lowerings } from "./lowering.js";
import { crossEntropy, crossEntropyBackward } from "./loss.js";
import { columnSum, norm, normBackward } from "./norm.js";

export const LOWERINGS: Partial<Lowerings> = {
  activation,
  activationBackward,
  amax,
  columnSum,
  crossEntropy,
  crossEntropyBackward,
  encode,
  gated,
  gatedBackward,
  norm,
  normBackward,
};
