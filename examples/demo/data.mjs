/** The digits as the network takes them: row by row, padded at the end. */
import { splitDigits } from "../shared/digits.mjs";

/** Pixels padded with zeros to a multiple of 32, which every block format takes. */
export const INPUTS = 800;

export function loadDigits() {
  return splitDigits(INPUTS, (pixel) => pixel);
}
