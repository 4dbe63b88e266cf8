/** The oracle of the special-function unit equals the recorded results of the chips (numerics.md §7.11). */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SPECIAL_FUNCTIONS } from "../../../src/formats/special-functions.js";
import { SPECIAL_FUNCTIONS as ORACLE } from "../../oracle/core/math-functions.js";
import * as unit from "../../oracle/core/special-functions.js";
import { draws, sampleCases } from "../harness/draws.js";
import {
  bitsToValue,
  hashResults,
  RECORDED_FUNCTIONS,
  SPECIAL_INPUTS,
  SPECIAL_RESULTS,
  type UnaryFunctionName,
  valueToBits,
} from "../harness/special-functions.js";

function bitsOf(name: UnaryFunctionName, input: number): number {
  const { dtype } = SPECIAL_FUNCTIONS[name];
  return valueToBits(dtype, ORACLE[name](bitsToValue(dtype, input)));
}

describe("recorded inputs", () => {
  it.each(SPECIAL_RESULTS)("have the recorded results of %s", (name, results) => {
    expect(SPECIAL_INPUTS.map((input) => bitsOf(name, input))).toEqual(results);
  });

  it.each(sampleCases(RECORDED_FUNCTIONS.recordings))(
    "have the recorded hash: $function, exponent $exponent",
    (recordedTable) => {
      expect(hashResults(recordedTable, (input) => bitsOf(recordedTable.function, input))).toBe(
        recordedTable.hash,
      );
    },
  );
});

describe("ex2", () => {
  it("is exact for every integer whose power of two is a normal number", () => {
    for (let exponent = -126; exponent <= 127; exponent++) expect(unit.ex2(exponent)).toBe(2 ** exponent);
  });
});

describe("the relative error", () => {
  const magnitudes = fc.double({ min: 2 ** -20, max: 100, noNaN: true }).map(Math.fround);
  const errorOf = (x: number, truth: number): number => Math.abs(x - truth) / Math.abs(truth);

  it("of ex2 is below 2^-22, and of tanh below 2^-10.9", () => {
    fc.assert(
      fc.property(magnitudes, fc.boolean(), (magnitude, isNegative) => {
        const x = isNegative ? -magnitude : magnitude;
        expect(errorOf(unit.ex2(x), 2 ** x)).toBeLessThan(2 ** -22);
        expect(errorOf(unit.tanh(x), Math.tanh(x))).toBeLessThan(2 ** -10.9);
      }),
      { numRuns: draws(20_000) },
    );
  });

  it("of rcp, rsqrt and sqrt is below 2^-22, and the absolute error of sine and cosine in [-pi, pi] below 2^-20", () => {
    fc.assert(
      fc.property(magnitudes, (x) => {
        expect(errorOf(unit.rcp(x), 1 / x)).toBeLessThan(2 ** -22);
        expect(errorOf(unit.rsqrt(x), 1 / Math.sqrt(x))).toBeLessThan(2 ** -22);
        expect(errorOf(unit.sqrt(x), Math.sqrt(x))).toBeLessThan(2 ** -22);
        const angle = Math.fround(x % Math.PI);
        expect(Math.abs(unit.sin(angle) - Math.sin(angle))).toBeLessThan(2 ** -20);
        expect(Math.abs(unit.cos(-angle) - Math.cos(angle))).toBeLessThan(2 ** -20);
      }),
      { numRuns: draws(20_000) },
    );
  });
});
