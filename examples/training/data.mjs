/** The digits as input of the network: 28x28 pixels centred in 32x32. */
import { SIDE, splitDigits } from "../shared/digits.mjs";

const PADDED = 32;
const BORDER = (PADDED - SIDE) / 2;
export const INPUTS = PADDED * PADDED;

export function loadDigits() {
  return splitDigits(
    INPUTS,
    (pixel) => (Math.floor(pixel / SIDE) + BORDER) * PADDED + (pixel % SIDE) + BORDER,
  );
}
