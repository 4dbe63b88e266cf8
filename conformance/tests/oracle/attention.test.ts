/**
 * The attention oracle equals cases computed on paper, is close to softmax attention in f64, and has the invariances of
 * numerics.md §10.
 */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DATAPATHS } from "../../../src/formats/datapath.js";
import { attention } from "../../oracle/attention/attention.js";
import { attentionBackward, type BackwardTask } from "../../oracle/attention/backward.js";
import { type HeadTask, isDropped, isVisible, keepFactor } from "../../oracle/attention/scores.js";
import { philox4x32 } from "../../oracle/core/philox.js";
import { fromBits } from "../../oracle/core/rational.js";
import { roundedIn } from "../../oracle/core/scale.js";
import { dotAddStep } from "../../oracle/gemm/step.js";
import { draws } from "../harness/draws.js";
import {
  createTask,
  FEATURES,
  HALF,
  PLAIN_TASK,
  plainAttention,
  relativeTolerance,
  SUBNORMAL_BOUND,
  TYPES,
} from "../harness/plain-attention.js";

const LN2 = Math.fround(Math.LN2);
const HALVES = [HALF, DATAPATHS["ada-half"].dotAdd, DATAPATHS["blackwell-half"].dotAdd];

type Matrix = readonly (readonly number[])[];

const withGradient = (task: HeadTask, grad: Matrix): BackwardTask => ({ ...task, ...attention(task), grad });

/** LN2 as the scale makes c = 1, so that scores are exponents of two; every sum of probabilities is 2. */
describe("two queries and three keys on paper", () => {
  const q = [
    [1, 0],
    [0, 1],
  ];
  const k = [
    [1, 1],
    [1, 0],
    [0, 0],
  ];
  const v = [
    [4, 0],
    [2, 8],
    [6, -4],
  ];
  const grad = [
    [1, 0],
    [0, 2],
  ];
  const types = [
    { ...PLAIN_TASK },
    { ...PLAIN_TASK, type: "bf16", rule: HALF },
    { ...PLAIN_TASK, type: "f16", rule: HALF },
  ] as const;

  describe.each(types)("$type", (type) => {
    const task: HeadTask = { ...type, q, k, v, scale: LN2, causal: true };
    const scaledScore = (x: number): number => roundedIn(Math.fround(x * LN2), task.type);

    it("has p = 1, 1 for query 0, and 1, ½, ½ for query 1", () => {
      expect(attention(task)).toEqual({
        out: [
          [3, 4],
          [4, 1],
        ],
        lse: [2 * LN2, 2 * LN2],
        maximum: LN2,
      });
    });

    it("has y = ½, -½ for query 0, and -1, 3.5, -2.5 for query 1", () => {
      const { dq, dk, dv, dbias } = attentionBackward([withGradient(task, grad)]);
      expect(dbias).toEqual([
        [
          [0.5, -0.5, 0],
          [-1, 3.5, -2.5],
        ],
      ]);
      expect(dq).toEqual([
        [
          [0, scaledScore(0.5)],
          [scaledScore(2.5), scaledScore(-1)],
        ],
      ]);
      expect(dk).toEqual([
        [scaledScore(0.5), scaledScore(-1)],
        [scaledScore(-0.5), scaledScore(3.5)],
        [0, scaledScore(-2.5)],
      ]);
      expect(dv).toEqual([
        [0.5, 1],
        [0.5, 0.5],
        [0, 0.5],
      ]);
    });

    it("gives a sink of 2 powers of two the same weight as its two keys", () => {
      const sunk = { ...task, q: q.slice(0, 1), k: k.slice(0, 2), v: v.slice(0, 2), sink: 2 * LN2 };
      const { out, lse, maximum } = attention({ ...sunk, causal: false });
      expect({ out, lse, maximum }).toEqual({
        out: [[1.5, 2]],
        lse: [Math.fround(3 * LN2)],
        maximum: LN2,
      });
      expect(attentionBackward([withGradient({ ...sunk, causal: false }, [[2, 1]])]).sinkTerms).toEqual([
        [2.5],
      ]);
    });
  });

  it("has out +0 and lse -Infinity for a query before the first key", () => {
    const { out, lse } = attention({
      ...PLAIN_TASK,
      q: [...q, [1, 1]],
      k: k.slice(0, 2),
      v: v.slice(0, 2),
      causal: true,
    });
    expect([out[0], lse[0]]).toEqual([[0, 0], Number.NEGATIVE_INFINITY]);
  });
});

describe("dropout", () => {
  const dropout = { probability: 0.5, seed: 0x1_0000_0002n, offset: 0x3_0000_0004n, head: 5n };
  const task: HeadTask = { ...PLAIN_TASK, q: [], k: [], v: [], dropout };

  it("gives keys 41 and 42 of query 6 the halves that the formulas of §10.5 name", () => {
    // key 41 is in group 1, pair 20: draw 4, byte group 1: word 1, upper half; key 42: draw 5, word 1, lower half
    const draw = (number: bigint) => philox4x32([number, 6n, 5n, 4n], [2n, 1n]);
    expect(isDropped(task, 6, 41)).toBe(draw(4n)[1] >> 16n < 0x8000n);
    expect(isDropped(task, 6, 42)).toBe((draw(5n)[1] & 0xffffn) < 0x8000n);
  });

  it("multiplies by what makes up for the dropped keys", () => {
    const keepOf = (probability: number) => keepFactor({ ...task, dropout: { ...dropout, probability } });
    expect([0, 0.25, 0.5, 1].map(keepOf)).toEqual([1, Math.fround(4 / 3), 2, 65_536]);
  });

  it("drops the stated share of the keys", () => {
    const keys = Array.from({ length: 4096 }, (_, j) => j);
    for (const probability of [0.1, 0.5, 0.9]) {
      const taskWithDropout = { ...task, dropout: { ...dropout, probability } };
      const share = keys.filter((j) => isDropped(taskWithDropout, 3, j)).length / 4096;
      expect(Math.abs(share - probability)).toBeLessThan(
        6 * Math.sqrt((probability * (1 - probability)) / 4096),
      );
    }
  });
});

describe("a step of zero products", () => {
  it("leaves every accumulator as it is, except that -0 becomes +0", () => {
    fc.assert(
      fc.property(fc.constantFrom(...HALVES), fc.integer({ min: 0, max: 0xffffffff }), (rule, bits) => {
        const accumulator = fromBits(bits);
        const zeros = Array<number>(rule.step).fill(0);
        expect(dotAddStep({ rule, accumulator, x: zeros, w: zeros, minExponent: -14 })).toBe(accumulator + 0);
      }),
      { numRuns: draws(2000) },
    );
  });
});

describe.each(TYPES)("attention of $type is near to softmax attention in f64", (type) => {
  it.each(FEATURES)("$name", (features) => {
    const task = createTask(type, features.task);
    const result = attention(task);
    const plainResult = plainAttention(task);
    const keepScale = keepFactor(task);
    for (const [i, row] of plainResult.out.entries()) {
      if (plainResult.lse[i] === Number.NEGATIVE_INFINITY)
        expect(result.lse[i]).toBe(Number.NEGATIVE_INFINITY);
      else expect(Math.abs(result.lse[i]! - plainResult.lse[i]!)).toBeLessThan(relativeTolerance(task));
      for (const [dimension, exactValue] of row.entries()) {
        // p is rounded to the type, and then out; p, E and the sum have the relative error of f32
        const magnitude = plainResult.p[i]!.reduce(
          (sum, probability, j) => sum + probability * keepScale * Math.abs(task.v[j]![dimension]!),
          0,
        );
        const bound =
          (type.unit + 3 * relativeTolerance(task)) * magnitude +
          type.unit * Math.abs(exactValue) +
          SUBNORMAL_BOUND;
        expect(Math.abs(result.out[i]![dimension]! - exactValue)).toBeLessThanOrEqual(bound);
      }
    }
  });
});

describe("a row", () => {
  const draw = fc.record({
    type: fc.constantFrom(...TYPES),
    features: fc.constantFrom(...FEATURES),
    seed: fc.nat(1000),
    keys: fc.integer({ min: 1, max: 40 }),
    queries: fc.integer({ min: 1, max: 4 }),
  });
  const cases = (run: (task: HeadTask) => void) =>
    fc.assert(
      fc.property(draw, ({ type, features, ...size }) =>
        run(createTask(type, features.task, { ...size, width: 7 })),
      ),
      { numRuns: draws(100) },
    );

  it("does not change when keys and values that are not visible become NaN", () => {
    cases((task) => {
      const result = attention(task);
      for (const i of task.q.keys()) {
        const hideKeys = (rows: Matrix) =>
          rows.map((row, j) => row.map((x) => (isVisible(task, i, j) ? x : Number.NaN)));
        const changedResult = attention({ ...task, k: hideKeys(task.k), v: hideKeys(task.v) });
        expect([changedResult.out[i], changedResult.lse[i]]).toEqual([result.out[i], result.lse[i]]);
      }
    });
  });

  it("does not change when queries are appended, if positions start together", () => {
    cases((task) => {
      const result = attention({ ...task, align: "start" });
      const extendedResult = attention({ ...task, align: "start", q: [...task.q, ...task.q] });
      expect(extendedResult.out.slice(0, task.q.length)).toEqual(result.out);
      expect(extendedResult.lse.slice(0, task.q.length)).toEqual(result.lse);
    });
  });

  it("does not change when queries are prepended, if positions end together", () => {
    cases(({ masked: _, bias: __, ...choices }) => {
      const task = { ...choices, align: "end" as const };
      const result = attention(task);
      const extendedResult = attention({ ...task, q: [...task.q, ...task.q] });
      expect(extendedResult.out.slice(task.q.length)).toEqual(result.out);
      expect(extendedResult.lse.slice(task.q.length)).toEqual(result.lse);
    });
  });

  it("is the same with one split as without splits", () => {
    cases((task) => {
      expect(attention({ ...task, splitKeys: 48 })).toEqual(attention({ ...task, splitKeys: 0 }));
    });
  });

  it("has gradients that no value at a hidden key changes", () => {
    cases((task) => {
      const causal = { ...task, causal: true, align: "start" } as const;
      const gradientsOf = (headTask: HeadTask) =>
        attentionBackward([withGradient(headTask, attention(task).out)]);
      const hidden = (rows: Matrix) =>
        rows.map((row, j) => row.map((x) => (j < task.q.length ? x : Number.NaN)));
      const { dq, dk, dv, sinkTerms } = gradientsOf({ ...causal, k: hidden(task.k), v: hidden(task.v) });
      const expected = gradientsOf(causal);
      expect({ dq, dk, dv, sinkTerms }).toEqual({
        dq: expected.dq,
        dk: expected.dk,
        dv: expected.dv,
        sinkTerms: expected.sinkTerms,
      });
    });
  });
});
