/** Numbers that are evenly distributed: nearly all numbers that `fc.double` and `fc.float` draw are next to 0 or to a limit. */
import * as fc from "fast-check";

const PARTS = 2 ** 16;

/** A share of a whole, from 0 to 1, such as the place where a test cuts a tensor. */
export const share: fc.Arbitrary<number> = fc.nat(PARTS).map((count) => count / PARTS);

/** An f32 number from `min` to `max`. */
export function numberBetween(min: number, max: number): fc.Arbitrary<number> {
  return fc.nat(2 ** 32 - 1).map((bits) => Math.fround(min + ((max - min) * bits) / (2 ** 32 - 1)));
}
