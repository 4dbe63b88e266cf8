/** The digits as input of the network: the pixels of a digit row by row, then padding. */
import { splitDigits } from "../shared/digits.mjs";

/** The number of pixels, padded with zeros to a multiple of 32, which every block format accepts. */
export const INPUTS = 800;

export function loadDigits() {
  return splitDigits(INPUTS, (pixel) => pixel);
}
