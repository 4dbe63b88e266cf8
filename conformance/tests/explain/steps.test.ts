/** Rounding to the wide types without an explanation. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { roundTo } from "../../../src/explain/rounding.js";
import { epsilonOf, roundedTo } from "../../../src/explain/steps.js";
import { fromBits } from "../../oracle/core/rational.js";

const number = fc.oneof(
  fc.integer({ min: 0, max: 2 ** 32 - 1 }).map(fromBits),
  fc
    .tuple(fc.integer({ min: -(2 ** 30), max: 2 ** 30 }), fc.integer({ min: -170, max: 100 }))
    .map(([significand, exponent]) => significand * 2 ** exponent),
);

it.each(["bf16", "f16"] as const)("a number is rounded to %s as its explanation says", (format) => {
  fc.assert(
    fc.property(number, (value) => {
      const { result } = roundTo(value, { format, rounding: "tiesToEven", overflow: "nonfinite" });
      expect(roundedTo(value, format)).toBe(result);
    }),
    { numRuns: 3000 },
  );
});

it("epsilon is the distance from 1 to the next number", () => {
  for (const dtype of ["f32", "bf16", "f16"] as const) {
    const epsilon = epsilonOf(dtype);
    expect(roundedTo(1 + epsilon, dtype)).toBe(1 + epsilon);
    expect(roundedTo(1 + epsilon / 2, dtype)).toBe(1);
  }
});
