/** The digits as input of the network: row by row, padded at the end. */
import { splitDigits } from "../shared/digits.mjs";

/** Pixels padded with zeros to a multiple of 32, which every block format takes. */
export const INPUTS = 800;

export function loadDigits() {
  return splitDigits(INPUTS, (pixel) => pixel);
}
