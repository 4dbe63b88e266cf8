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
import { scoped, useBackend } from "../harness/suite.js";

const backend = useBackend();
const ONE = wide.real(1);

/** The cosine and sine in units of 2^-256, by series at a small angle and formulas of doubled angles. */
function trueAngles(x: number): readonly [cos: wide.Real, sin: wide.Real] {
  let doublings = 0;
  let r = wide.real(x);
  for (; r > ONE >> 8n || r < -(ONE >> 8n); doublings++) r >>= 1n;
  const square = wide.multiply(r, r);
  let [cos, sin] = [0n, 0n];
  let [c, s] = [ONE, r];
  for (let k = 1n; c !== 0n && c !== -1n; k += 2n) {
    cos += c;
    sin += s;
    c = -wide.multiply(c, square) / (k * (k + 1n));
    s = -wide.multiply(s, square) / ((k + 1n) * (k + 2n));
  }
  for (; doublings > 0; doublings--)
    [cos, sin] = [2n * wide.multiply(cos, cos) - ONE, 2n * wide.multiply(cos, sin)];
  return [cos, sin];
}

describe("cosineAndSine", () => {
  it("are the nearest f32 of every angle", () => {
    const positive = fc.integer({ min: 0x30000000, max: 0x4d000000 }).map(fromBits);
    const nearQuadrant = fc
      .tuple(fc.integer({ min: 1, max: 2 ** 24 }), fc.integer({ min: -3, max: 3 }))
      .map(([n, steps]) => Math.fround(n * (Math.PI / 2)) * (1 + steps * 2 ** -23))
      .map(Math.fround);
    fc.assert(
      fc.property(fc.oneof(positive, nearQuadrant), (angle) => {
        const [cos, sin] = cosineAndSine(angle);
        const [c, s] = trueAngles(angle);
        expect(wide.ulpsApart(cos, c)).toBeLessThanOrEqual(0.5);
        expect(wide.ulpsApart(sin, s)).toBeLessThanOrEqual(0.5);
        const [same, negative] = cosineAndSine(-angle);
        expect([same, negative]).toEqual([cos, -sin]);
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
  scoped("are the nearest f32 of base^(-2i/R)", () => {
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

  const scaled = (scaling: RotaryScaling): readonly number[] => [
    ...new RotaryPositionEmbedding(backend(), 128, { rotaryBase: 500000, scaling }).invFreq,
  ];
  const plain = (): readonly number[] => [
    ...new RotaryPositionEmbedding(backend(), 128, { rotaryBase: 500000 }).invFreq,
  ];

  scoped("of the rule factors are divided, each by its own", () => {
    const factors = plain().map((_, i) => 1 + i / 3);
    const expected = factors.map((factor, i) => scaled({ kind: "linear", factor })[i]);
    expect(scaled({ kind: "factors", factors })).toEqual(expected);
    const ones = plain().map(() => 1);
    expect(scaled({ kind: "factors", factors: ones })).toEqual(plain());
    expect(() => scaled({ kind: "factors", factors: ones.slice(1) })).toThrow(/scaling.factors has/);
    expect(() => scaled({ kind: "factors", factors: ones.map(() => 0) })).toThrow(/must be above 0/);
  });

  scoped("of the rule linear are divided", () => {
    expect(scaled({ kind: "linear", factor: 4 })).toEqual(plain().map((each) => each / 4));
  });

  scoped("of Llama 3 are kept, divided, or between", () => {
    const rule = { factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalMaxPositionEmbeddings: 8192 };
    const frequencies = scaled({ kind: "llama3", ...rule });
    for (const [i, each] of plain().entries()) {
      const turns = (8192 * each) / (2 * Math.PI);
      const actual = frequencies[i] as number;
      if (turns > 4) expect(actual).toBe(each);
      else if (turns < 1) expect(actual).toBe(Math.fround(each / 8));
      else {
        const u = (turns - 1) / 3;
        expect(actual / (((1 - u) * each) / 8 + u * each)).toBeCloseTo(1, 6);
      }
    }
  });

  scoped("of YaRN are kept up to one end of a ramp and divided from the other", () => {
    const scaling = { kind: "yarn", factor: 4, originalMaxPositionEmbeddings: 4096 } as const;
    const end = (turns: number) => (128 * Math.log(4096 / (turns * 2 * Math.PI))) / (2 * Math.log(500000));
    for (const truncate of [true, false]) {
      const frequencies = scaled({ ...scaling, truncate });
      const low = truncate ? Math.floor(end(32)) : end(32);
      const high = truncate ? Math.ceil(end(1)) : end(1);
      for (const [i, each] of plain().entries()) {
        const ramp = Math.min(Math.max((i - low) / (high - low), 0), 1);
        const expected = (each / 4) * ramp + each * (1 - ramp);
        expect((frequencies[i] as number) / expected).toBeCloseTo(1, 6);
      }
    }
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
      ...limits.map((limit) => fc.integer({ min: -1, max: 1 }).map((more) => Math.max(0, limit + more))),
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
    .chain((drawn) => {
      const { seqLenInterpolationFactor: factor = 1, pretrainedMaxPositionEmbeddings: positions = 1 } = drawn;
      const length = lengths([positions, positions * factor]);
      return fc.tuple(fc.constant(drawn), length, fc.oneof(fc.nat({ max: 9 }), fc.nat({ max: 2 ** 24 })));
    });

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
        expect([...cos.dataSync()]).toEqual(angles.map(([c]) => c));
        expect([...sin.dataSync()]).toEqual(angles.map(([, s]) => s));
      }),
      { numRuns: draws(200) },
    );
  });

  scoped("need an even number of elements, a base above 1 and a rule with its fields", () => {
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
