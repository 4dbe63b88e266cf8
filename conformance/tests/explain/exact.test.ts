/** Sums of two numbers and fused multiply-adds with one rounding. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { dyadicText, fma, roundSumToF32, roundToF32 } from "../../../src/explain/exact.js";
import * as rational from "../../oracle/core/rational.js";

/** All f32 numbers, and numbers of few bits and near exponents, whose sums are ties. */
const number = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(rational.fromBits),
  fc
    .tuple(fc.integer({ min: -4097, max: 4097 }), fc.integer({ min: -14, max: 14 }))
    .map(([significand, exponent]) => significand * 2 ** exponent),
);

describe("fma", () => {
  it("rounds the exact result once", () => {
    fc.assert(
      fc.property(number, number, number, (a, b, c) => {
        expect(fma(a, b, c)).toBe(rational.fma(a, b, c));
      }),
      { numRuns: 3000 },
    );
  });

  it("decides a tie of f32 by bits far below it", () => {
    // 1 + 2^-24 is a tie between 1 and 1 + 2^-23
    for (const [tail, expected] of [
      [2 ** -140, 1 + 2 ** -23],
      [-(2 ** -140), 1],
      [0, 1],
    ] as const)
      expect(roundSumToF32(1 + 2 ** -24, tail)).toBe(expected);
  });
});

describe("roundSumToF32", () => {
  it("rounds the exact sum of two f64 numbers once", () => {
    const exactNumber = fc
      .tuple(fc.integer({ min: -(2 ** 52), max: 2 ** 52 }), fc.integer({ min: -150, max: 40 }))
      .map(([significand, exponent]) => significand * 2 ** exponent);
    fc.assert(
      fc.property(exactNumber, exactNumber, (p, q) => {
        const exact = rational.f32(rational.plus(rational.ofNumber(p), rational.ofNumber(q)));
        expect(roundSumToF32(p, q) === exact).toBe(true);
      }),
      { numRuns: 3000 },
    );
  });
});

describe("an exact number", () => {
  const cases = fc.record({
    significand: fc.oneof(
      fc.integer({ min: -(2 ** 27), max: 2 ** 27 }),
      fc.integer({ min: -(2 ** 52), max: 2 ** 52 }),
    ),
    exponent: fc.integer({ min: -180, max: 80 }),
  });

  it("is rounded to the nearest f32, ties to even, and printed with an odd significand", () => {
    const ties = [2 ** 24 + 1, 2 ** 24 + 3, -(2 ** 25) - 6, 0, 8].map((significand) => ({
      ...{ significand, exponent: -20 },
    }));
    fc.assert(
      fc.property(cases, ({ significand, exponent }) => {
        const x = { significand: BigInt(significand), exponent };
        const exact = rational.times(rational.ofNumber(significand), rational.powerOfTwo(exponent));
        expect(roundToF32(x) === rational.f32(exact)).toBe(true);
        const text = dyadicText(x);
        if (significand === 0) expect(text).toBe("0");
        else {
          const [, oddFactor = "", shift = ""] = /^(-?\d+) \* 2\^(-?\d+)$/.exec(text) ?? [];
          expect(Math.abs(Number(oddFactor) % 2)).toBe(1);
          expect(BigInt(oddFactor) << BigInt(Number(shift) - exponent)).toBe(x.significand);
        }
      }),
      { numRuns: 1000, examples: ties.map((tie) => [tie]) },
    );
  });
});
