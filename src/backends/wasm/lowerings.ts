/** Every operation of the reference, by name. */
import { activation, activationBackward, gated, gatedBackward } from "./activation.js";
import { amax, decode, encode } from "./cast.js";
import type { Lowerings } from "./lowering.js";
import { crossEntropy, crossEntropyBackward } from "./loss.js";
import { columnSum, norm, normBackward } from "./norm.js";
import { sweep } from "./sweep.js";

export const LOWERINGS: Partial<Lowerings> = {
  activation,
  activationBackward,
  amax,
  columnSum,
  crossEntropy,
  crossEntropyBackward,
  decode,
  encode,
  gated,
  gatedBackward,
  norm,
  normBackward,
  sweep,
};
