/**
 * RotaryPositionEmbedding: its angles are the nearest f32, its frequencies follow their rules, and each option follows its
 * formula.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../src/errors.js";
import { cosineAndSine } from "../../../src/modules/rotary/cosine.js";
import type { RotaryScaling } from "../../../src/modules/rotary/inverse-frequencies.js";
import { RotaryPositionEmbedding } from "../../../src/modules/rotary-position-embedding.js";
import { Scope } from "../../../src/tensor/scope.js";
import { fromBits } from "../../oracle/core/rational.js";
import * as wide from "../../oracle/core/wide.js";
import { draws, drawsOr } from "../harness/draws.js";
import { testInScope, useBackend } from "../harness/suite.js";

const backend = useBackend();
const ONE = wide.real(1);

/** The cosine and sine in units of 2^-256, by series at a small angle and formulas of doubled angles. */
function trueAngles(x: number): readonly [cos: wide.Real, sin: wide.Real] {
  let doublings = 0;
  let remainder = wide.real(x);
  for (; remainder > ONE >> 8n || remainder < -(ONE >> 8n); doublings++) remainder >>= 1n;
  const square = wide.multiply(remainder, remainder);
  let [cos, sin] = [0n, 0n];
  let [cosine, sine] = [ONE, remainder];
  for (let k = 1n; cosine !== 0n && cosine !== -1n; k += 2n) {
    cos += cosine;
    sin += sine;
    cosine = -wide.multiply(cosine, square) / (k * (k + 1n));
    sine = -wide.multiply(sine, square) / ((k + 1n) * (k + 2n));
  }
  for (; doublings > 0; doublings--)
    [cos, sin] = [2n * wide.multiply(cos, cos) - ONE, 2n * wide.multiply(cos, sin)];
  return [cos, sin];
}

/** The f64 nearest to a real number. */
const nearestDouble = (x: wide.Real): number => Number(x) * 2 ** -256;
const nearestLogarithm = (x: number): number => nearestDouble(wide.log(wide.real(x)));

/** The f64 nearest to base^(-2i/R) for each pair i of R elements. */
function unscaledFrequencies(dim: number, base: number): readonly number[] {
  const logarithm = wide.log(wide.real(base));
  return Array.from({ length: dim / 2 }, (_, i) =>
    nearestDouble(wide.exp((-logarithm * BigInt(2 * i)) / BigInt(dim))),
  );
}

interface YarnRule {
  readonly dim: number;
  readonly rotaryBase: number;
  readonly factor: number;
  readonly originalMaxPositionEmbeddings: number;
  readonly betaFast?: number | undefined;
  readonly betaSlow?: number | undefined;
  readonly truncate?: boolean | undefined;
}

/** Rules whose ramp begins and ends before, among and after the pairs, and after all elements. */
const yarnRules: fc.Arbitrary<YarnRule> = fc.record({
  dim: fc.constantFrom(2, 8, 64),
  rotaryBase: fc.constantFrom(10, 10000, 500000),
  factor: fc.constantFrom(0.5, 4, 7),
  originalMaxPositionEmbeddings: fc.nat(24).map((bits) => 2 ** bits),
  betaFast: fc.constantFrom(undefined, 2, 32, 1000),
  betaSlow: fc.constantFrom(undefined, 0.5, 1, 2),
  truncate: fc.constantFrom(undefined, false, true),
});

/** Rules with one unusual end each. */
const YARN_ENDS: readonly YarnRule[] = [
  // the ramp ends after the last pair, but within the elements
  { dim: 8, rotaryBase: 10000, factor: 4, originalMaxPositionEmbeddings: 131072 },
  // after the last element
  { dim: 8, rotaryBase: 10, factor: 4, originalMaxPositionEmbeddings: 131072, betaFast: 1000 },
  // before the first pair
  { dim: 8, rotaryBase: 10000, factor: 4, originalMaxPositionEmbeddings: 64 },
  // where it begins
  { dim: 8, rotaryBase: 10000, factor: 4, originalMaxPositionEmbeddings: 4 },
];

describe("cosineAndSine", () => {
  it("are the nearest f32 of every angle", () => {
    const positive = fc.integer({ min: 0x30000000, max: 0x4d000000 }).map(fromBits);
    const nearQuadrant = fc
      .tuple(fc.integer({ min: 1, max: 2 ** 24 }), fc.integer({ min: -3, max: 3 }))
      .map(([count, steps]) => Math.fround(count * (Math.PI / 2)) * (1 + steps * 2 ** -23))
      .map(Math.fround);
    fc.assert(
      fc.property(fc.oneof(positive, nearQuadrant), (angle) => {
        const [cos, sin] = cosineAndSine(angle);
        const [cosine, sine] = trueAngles(angle);
        expect(wide.ulpsApart(cos, cosine)).toBeLessThanOrEqual(0.5);
        expect(wide.ulpsApart(sin, sine)).toBeLessThanOrEqual(0.5);
        const [cosineAgain, negative] = cosineAndSine(-angle);
        expect([cosineAgain, negative]).toEqual([cos, -sin]);
      }),
      { numRuns: drawsOr(2000) },
    );
  });

  it("are exact at 0 and NaN without an angle", () => {
    expect(cosineAndSine(0)).toEqual([1, 0]);
    expect(cosineAndSine(1 / 0)).toEqual([Number.NaN, Number.NaN]);
    expect(cosineAndSine(Number.NaN)).toEqual([Number.NaN, Number.NaN]);
  });
});

describe("frequencies", () => {
  testInScope("are the nearest f32 of base^(-2i/R)", () => {
    for (const [dim, base] of [
      [128, 10000],
      [64, 500000],
      [6, 1.5],
      [10, 16],
    ] as const) {
      const logarithm = wide.log(wide.real(base));
      for (const [i, actual] of new RotaryPositionEmbedding(backend(), dim, {
        rotaryBase: base,
      }).invFreq.entries()) {
        const exponent = (-logarithm * BigInt(2 * i)) / BigInt(dim);
        expect(wide.ulpsApart(actual, wide.exp(exponent))).toBeLessThanOrEqual(0.5);
      }
    }
  });

  const scaledAngles = (scaling: RotaryScaling): readonly number[] => [
    ...new RotaryPositionEmbedding(backend(), 128, { rotaryBase: 500000, scaling }).invFreq,
  ];
  const unscaledAngles = (): readonly number[] => [
    ...new RotaryPositionEmbedding(backend(), 128, { rotaryBase: 500000 }).invFreq,
  ];

  testInScope("of the rule factors are divided, each by its own", () => {
    const factors = unscaledAngles().map((_, i) => 1 + i / 3);
    const expected = factors.map((factor, i) => scaledAngles({ kind: "linear", factor })[i]);
    expect(scaledAngles({ kind: "factors", factors })).toEqual(expected);
    const onesArray = unscaledAngles().map(() => 1);
    expect(scaledAngles({ kind: "factors", factors: onesArray })).toEqual(unscaledAngles());
    expect(() => scaledAngles({ kind: "factors", factors: onesArray.slice(1) })).toThrow(
      /scaling.factors has/,
    );
    expect(() => scaledAngles({ kind: "factors", factors: onesArray.map(() => 0) })).toThrow(
      /must be above 0/,
    );
  });

  testInScope("of the rule linear are divided", () => {
    expect(scaledAngles({ kind: "linear", factor: 4 })).toEqual(unscaledAngles().map((angle) => angle / 4));
  });

  it("of Llama 3 are kept, divided, or between", () => {
    const rules = fc.record({
      dim: fc.constantFrom(2, 8, 64),
      rotaryBase: fc.constantFrom(10, 10000, 500000),
      factor: fc.constantFrom(0.5, 8, 7),
      lowFreqFactor: fc.constantFrom(0.5, 1, 2),
      highFreqFactor: fc.constantFrom(4, 5, 100),
      originalMaxPositionEmbeddings: fc.nat(24).map((bits) => 2 ** bits),
    });
    fc.assert(
      fc.property(rules, ({ dim, rotaryBase, ...rule }) => {
        const { factor, lowFreqFactor, highFreqFactor, originalMaxPositionEmbeddings: positions } = rule;
        const expected = unscaledFrequencies(dim, rotaryBase).map((frequency) => {
          const wavelength = (2 * Math.PI) / frequency;
          if (wavelength > positions / lowFreqFactor) return Math.fround(frequency / factor);
          if (wavelength < positions / highFreqFactor) return Math.fround(frequency);
          const ramp = (positions / wavelength - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
          return Math.fround(((1 - ramp) * frequency) / factor + ramp * frequency);
        });
        const scaling = { kind: "llama3", ...rule } as const;
        const rotary = new RotaryPositionEmbedding(backend(), dim, { rotaryBase, scaling });
        expect([...rotary.invFreq]).toEqual(expected);
      }),
      { numRuns: draws(300, 20) },
    );
  });

  it("of YaRN are kept up to one end of a ramp and divided from the other, wherever the ends are", () => {
    fc.assert(
      fc.property(yarnRules, ({ dim, rotaryBase, ...rule }) => {
        const { factor, originalMaxPositionEmbeddings: positions } = rule;
        const { betaFast = 32, betaSlow = 1, truncate = true } = rule;
        const turnsAt = (rotations: number) =>
          (dim * nearestLogarithm(positions / (rotations * 2 * Math.PI))) /
          (2 * nearestLogarithm(rotaryBase));
        const [fast, slow] = [turnsAt(betaFast), turnsAt(betaSlow)];
        const low = Math.max(truncate ? Math.floor(fast) : fast, 0);
        const end = Math.min(truncate ? Math.ceil(slow) : slow, dim - 1);
        const high = low === end ? end + 0.001 : end;
        const expected = unscaledFrequencies(dim, rotaryBase).map((frequency, i) => {
          const keptShare = 1 - Math.min(Math.max((i - low) / (high - low), 0), 1);
          return Math.fround((frequency / factor) * (1 - keptShare) + frequency * keptShare);
        });
        const scaling = { kind: "yarn", ...rule } as const;
        const rotary = new RotaryPositionEmbedding(backend(), dim, { rotaryBase, scaling });
        expect([...rotary.invFreq]).toEqual(expected);
      }),
      { numRuns: draws(300, 20), examples: YARN_ENDS.map((yarnEnd) => [yarnEnd]) },
    );
  });

  testInScope("of YaRN have a factor of cosines and sines", () => {
    const scaling = { kind: "yarn", factor: 4, originalMaxPositionEmbeddings: 4096 } as const;
    const factor = Math.fround(0.1 * Math.log(4) + 1);
    const at0 = (rule: RotaryScaling) =>
      new RotaryPositionEmbedding(backend(), 4, { scaling: rule }).forward(1).cos.dataSync()[0];
    expect(at0(scaling)).toBe(factor);
    expect(at0({ ...scaling, attentionFactor: 0.5 })).toBe(0.5);
    expect(at0({ ...scaling, factor: 0.5 })).toBe(1);
  });
});

describe("angles", () => {
  /** A number of positions that is often at a limit of interpolation: the number in training, or its product with the factor. */
  const lengths = (limits: readonly number[]): fc.Arbitrary<number> =>
    fc.oneof(
      fc.nat({ max: 40 }),
      ...limits.map((limit) => fc.integer({ min: -1, max: 1 }).map((offset) => Math.max(0, limit + offset))),
    );
  const rotaries = fc
    .record({
      dim: fc.constantFrom(2, 8, 12),
      rotaryPercent: fc.constantFrom(undefined, 0.5, 1, 0.75, 0),
      rotaryBase: fc.constantFrom(undefined, 1.5, 500),
      interleaved: fc.constantFrom(undefined, false, true),
      seqLenInterpolationFactor: fc.option(fc.integer({ min: 1, max: 6 }), { nil: undefined, freq: 5 }),
      pretrainedMaxPositionEmbeddings: fc.option(fc.integer({ min: 1, max: 8 }), { nil: undefined, freq: 5 }),
    })
    .filter(({ dim, rotaryPercent = 1 }) => Math.floor(dim * rotaryPercent) % 2 === 0)
    .chain((choices) => {
      const { seqLenInterpolationFactor: factor = 1, pretrainedMaxPositionEmbeddings: positions = 1 } =
        choices;
      const length = lengths([positions, positions * factor]);
      const offset = fc.oneof(...[9, 2 ** 24, 2 ** 30].map((max) => fc.nat({ max })));
      return fc.tuple(fc.constant(choices), length, offset);
    });
  /** A position that is not an f32 is rounded before it is divided. */
  const BEYOND_F32: typeof rotaries extends fc.Arbitrary<infer T> ? T : never = [
    {
      ...{ dim: 2, rotaryPercent: undefined, rotaryBase: undefined, interleaved: undefined },
      ...{ seqLenInterpolationFactor: 3, pretrainedMaxPositionEmbeddings: 100 },
    },
    4,
    2 ** 24,
  ];

  it("are those of positions that the factor of interpolation divides, times frequencies, with every option", () => {
    fc.assert(
      fc.property(rotaries, ([{ dim, ...options }, length, offset]) => {
        using _scope = new Scope();
        const rotary = new RotaryPositionEmbedding(backend(), dim, options);
        const { cos, sin, interleaved } = rotary.forward(length, offset);
        const pairs = Math.floor(dim * (options.rotaryPercent ?? 1)) / 2;
        expect([cos.shape, sin.shape, interleaved]).toEqual([
          [length, pairs],
          [length, pairs],
          options.interleaved ?? false,
        ]);
        const { seqLenInterpolationFactor: factor, pretrainedMaxPositionEmbeddings: positions } = options;
        const isInterpolated = factor !== undefined && positions !== undefined;
        const divisor = isInterpolated ? Math.max(factor, length / positions) : 1;
        const angles = Array.from({ length }, (_, p) => {
          const position = Math.fround(Math.fround(offset + p) * Math.fround(1 / divisor));
          return Array.from(rotary.invFreq, (frequency) => cosineAndSine(Math.fround(position * frequency)));
        }).flat();
        expect([...cos.dataSync()]).toEqual(angles.map(([cosine]) => cosine));
        expect([...sin.dataSync()]).toEqual(angles.map(([, sine]) => sine));
      }),
      { numRuns: draws(200), examples: [[BEYOND_F32]] },
    );
  });

  testInScope("need an even number of elements, a base above 1 and a rule with its fields", () => {
    const make = (dim: number, options: object) => new RotaryPositionEmbedding(backend(), dim, options);
    expect(() => make(5, {})).toThrow(ArgumentError);
    expect(() => make(8, { rotaryBase: 1 })).toThrow("above 1");
    expect(() => make(8, { rotaryPercent: 1.5 })).toThrow("from 0 to 1");
    expect(() => make(8, { scaling: { kind: "linear" } })).toThrow("factor");
    expect(() => make(8, { scaling: { kind: "ntk", factor: 2 } })).toThrow("scaling.kind");
    const llama3 = { kind: "llama3", factor: 2, lowFreqFactor: 4, highFreqFactor: 4 };
    expect(() => make(8, { scaling: { ...llama3, originalMaxPositionEmbeddings: 8 } })).toThrow("larger");
  });
});
