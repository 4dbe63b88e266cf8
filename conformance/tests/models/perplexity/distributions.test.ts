import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { klDivergence, logSumExp, top1 } from "../../../../src/models/perplexity/distributions.js";
import { numberBetween } from "../../arbitraries/share.js";
import { draws } from "../../harness/draws.js";

const logits = (length: number): fc.Arbitrary<Float32Array> =>
  fc
    .array(fc.oneof(numberBetween(-30, 30), fc.float({ min: -30, max: 30, noNaN: true })), {
      minLength: length,
      maxLength: length,
    })
    .map((values) => Float32Array.from(values));
const distributionOf = (values: Float32Array) => ({ logits: values, logSum: logSumExp(values) });
/** Probabilities by their definition. */
const softmax = (values: Float32Array): readonly number[] => {
  const powers = Array.from(values, (value) => Math.E ** value);
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
};

describe("logSumExp", () => {
  it("is the logarithm of the sum, also where exponentials overflow", () => {
    expect(logSumExp(Float32Array.of(0, 0))).toBe(Math.LN2);
    expect(logSumExp(Float32Array.of(5000, 5000))).toBe(5000 + Math.LN2);
    expect(logSumExp(Float32Array.of(-5000))).toBe(-5000);
    expect(logSumExp(Float32Array.of(0, Number.NaN))).toBeNaN();
  });

  it("normalizes probabilities", () => {
    fc.assert(
      fc.property(logits(9), fc.nat(8), (values, i) => {
        const { logSum } = distributionOf(values);
        expect(Math.exp((values[i] as number) - logSum)).toBeCloseTo(softmax(values)[i] as number, 12);
      }),
      { numRuns: draws(1000, 100) },
    );
  });
});

describe("klDivergence", () => {
  it("is the sum of p log(p / q), and 0 exactly for equal logits", () => {
    fc.assert(
      fc.property(logits(7), logits(7), (a, b) => {
        expect(klDivergence(distributionOf(a), distributionOf(a))).toBe(0);
        const [p, q] = [softmax(a), softmax(b)];
        const expected = p.reduce(
          (sum, probability, i) => sum + probability * Math.log(probability / (q[i] as number)),
          0,
        );
        expect(klDivergence(distributionOf(a), distributionOf(b))).toBeCloseTo(expected, 9);
      }),
      { numRuns: draws(1000, 100) },
    );
  });

  it("has no term for a probability of 0, whatever q is there", () => {
    const impossible = fc.constantFrom(Number.NEGATIVE_INFINITY, -3e38, -1e4);
    fc.assert(
      fc.property(logits(5), logits(5), fc.nat(5), impossible, impossible, (a, b, at, pLogit, qLogit) => {
        const p = distributionOf(Float32Array.from(Array.from(a).toSpliced(at, 0, pLogit)));
        const q = distributionOf(Float32Array.from(Array.from(b).toSpliced(at, 0, qLogit)));
        expect(klDivergence(p, q)).toBe(klDivergence(distributionOf(a), distributionOf(b)));
      }),
      { numRuns: draws(1000, 100) },
    );
  });

  it("is infinite where only q is 0, and NaN for a NaN", () => {
    const certain = distributionOf(Float32Array.of(0, Number.NEGATIVE_INFINITY));
    const even = distributionOf(Float32Array.of(0, 0));
    expect(klDivergence(certain, even)).toBe(Math.LN2);
    expect(klDivergence(even, certain)).toBe(Number.POSITIVE_INFINITY);
    const unknown = distributionOf(Float32Array.of(0, Number.NaN));
    expect(klDivergence(unknown, even)).toBeNaN();
    expect(klDivergence(even, unknown)).toBeNaN();
  });
});

describe("top1", () => {
  it("is the lowest index of the largest logits", () => {
    expect(top1(Float32Array.of(1, 3, 3, 2))).toBe(1);
    expect(top1(Float32Array.of(-0, 0))).toBe(0);
    expect(top1(Float32Array.of(2))).toBe(0);
  });
});
