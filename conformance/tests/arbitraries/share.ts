/** Shares of a whole, such as the places where a test cuts a tensor. */
import * as fc from "fast-check";

const PARTS = 2 ** 16;

/** A number from 0 to 1, evenly distributed. Nearly all numbers that `fc.double` draws from 0 to 1 are next to these ends. */
export const share: fc.Arbitrary<number> = fc.nat(PARTS).map((count) => count / PARTS);
