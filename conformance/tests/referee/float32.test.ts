// The fma of the models is x * y + z in exact arithmetic, rounded once to f32.
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fma } from "../../../src/referee/float32.js";
import * as exact from "../../oracle/core/rational.js";

const f32 = fc.float({ noNaN: true, noDefaultInfinity: true });

/** Two factors of 13 bits, whose product of up to 26 bits may be a midpoint of f32, and a far smaller addend. */
const nearMiddle = fc
  .tuple(
    fc.integer({ min: 2 ** 12, max: 2 ** 13 - 1 }),
    fc.integer({ min: 2 ** 12, max: 2 ** 13 - 1 }),
    fc.integer({ min: -150, max: 0 }),
    fc.constantFrom(-1, 1),
  )
  .map(([x, y, exponent, sign]) => [x, y, sign * 2 ** Math.max(exponent, -149)] as const);

describe("fma", () => {
  it.each([
    ["above the middle", 1 + 2 ** -12, 1 + 2 ** -12, 2 ** -80],
    ["below the middle", 1 + 2 ** -12, 1 + 2 ** -12, -(2 ** -80)],
    ["in the middle", 1 + 2 ** -12, 1 + 2 ** -12, 0],
    ["below a middle at a power of two", 1, 1, -(2 ** -25) - 2 ** -48],
    ["of subnormal results", 2 ** -75, 1.5 * 2 ** -75, 2 ** -149],
    ["of subnormal results, above the middle", 2 ** -75, 2 ** -75, 2 ** -149],
    ["beyond the largest number", 2 ** 64, 2 ** 64, -(2 ** 100)],
    ["midway to 2^128", 31 * 2 ** 52, 601 * 1801 * 2 ** 51, 0],
    ["just above the middle to 2^128", 31 * 2 ** 52, 601 * 1801 * 2 ** 51, 2 ** -80],
    ["just below the middle to 2^128", 31 * 2 ** 52, 601 * 1801 * 2 ** 51, -(2 ** -80)],
  ])("%s is rounded once", (_where, x, y, z) => {
    expect(fma(x, y, z)).toBe(exact.fma(x, y, z));
    expect(fma(-x, y, -z)).toBe(exact.fma(-x, y, -z));
  });

  it("of any numbers is rounded once", () => {
    fc.assert(fc.property(f32, f32, f32, (x, y, z) => Object.is(fma(x, y, z), exact.fma(x, y, z))));
  });

  it("close to the middle of two numbers is rounded once", () => {
    fc.assert(fc.property(nearMiddle, ([x, y, z]) => Object.is(fma(x, y, z), exact.fma(x, y, z))));
  });
});
