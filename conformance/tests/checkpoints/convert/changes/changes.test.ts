/** Statistics of codes that share a scale are those of their values one by one. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { Changes } from "../../../../../src/checkpoints/convert/changes/changes.js";
import { draws } from "../../../harness/draws.js";

const scale = fc.constantFrom(0, 0.5, 1, 2, 3, 0.25);
/** Nonzero codes with one scale before and one after. Their products, and the sums of squares, are exact in f64. */
const group = fc.record({
  codes: fc.array(fc.constantFrom(1, -1, 2, -3, 6, 448), { minLength: 1, maxLength: 6 }),
  before: scale,
  after: scale,
});

it("many codes under one scale have the statistics of their values one by one", () => {
  fc.assert(
    fc.property(fc.array(group, { maxLength: 4 }), (groups) => {
      const [many, single] = [new Changes(), new Changes()];
      for (const { codes, before, after } of groups) {
        const squares = codes.reduce((sum, code) => sum + code * code, 0);
        many.elements += codes.length;
        many.addMany({ count: codes.length, squares, max: Math.max(...codes.map(Math.abs)) }, before, after);
        for (const code of codes) single.add(code * before, code * after);
      }
      expect(many).toEqual(single);
      expect(many.sqnr).toBe(single.sqnr);
    }),
    { numRuns: draws(1000, 100), examples: [[[{ codes: [448, 1], before: 3, after: 2 }]]] },
  );
});

it("equal values that are added together have the statistics of the values one by one", () => {
  const value = fc.constantFrom(
    0,
    -0,
    1,
    -2,
    448,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    Number.NaN,
  );
  const addition = fc.tuple(value, value, fc.integer({ min: 1, max: 5 }));
  fc.assert(
    fc.property(fc.array(addition, { maxLength: 4 }), (additions) => {
      const [many, single] = [new Changes(), new Changes()];
      for (const [before, after, count] of additions) {
        many.add(before, after, count);
        for (let i = 0; i < count; i++) single.add(before, after);
      }
      expect(many).toEqual(single);
    }),
    { numRuns: draws(1000, 100) },
  );
});
