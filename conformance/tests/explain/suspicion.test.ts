/**
 * The suspected cause of a wrong code: the rounding that would give this code, inferred from the position between its neighbours.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { Suspicions } from "../../../src/explain/suspicion.js";
import { makeSpec } from "../../../src/tensor/spec.js";
import { draws } from "../harness/draws.js";

const COLUMNS = 32;
/** The code of 1 in e4m3, whose values from 1 to 2 are eighths apart, and the sign. */
const [ONE, SIGN] = [0x38, 0x80];
const spec = makeSpec("mxfp8", {});

it("is the rounding that takes the other neighbour", () => {
  fc.assert(
    fc.property(
      fc.nat(6),
      fc.constantFrom(0.25, 0.375, 0.5, 0.625, 0.75),
      fc.boolean(),
      fc.integer({ min: 1, max: COLUMNS - 1 }),
      fc.boolean(),
      (eighths, fraction, isNegative, column, isFirst) => {
        const magnitude = 1 + (eighths + fraction) / 8;
        // 256 makes the scale 1
        const data = new Float32Array(COLUMNS).fill(256);
        data[column] = isNegative ? -magnitude : magnitude;
        const values = { data, dtype: "f32", shape: [1, COLUMNS] } as const;
        const suspicions = new Suspicions(values, { spec, context: { direction: "rowwise" } });
        const lowerCode = ONE + eighths;
        const isUp = fraction === 0.5 ? lowerCode % 2 === 1 : fraction > 0.5;
        const [rightCode, wrongCode] = (isUp ? [lowerCode + 1, lowerCode] : [lowerCode, lowerCode + 1]).map(
          (code) => ({
            code: code + (isNegative ? SIGN : 0),
            scale: 127,
          }),
        ) as [{ code: number; scale: number }, { code: number; scale: number }];
        const suspectedCause = isUp
          ? fraction === 0.5
            ? "ties toward zero"
            : "truncation"
          : fraction === 0.5
            ? "half-away rounding"
            : `rounding toward ${isNegative ? "negative" : "positive"}`;
        const sentence = isFirst
          ? suspicions.describe(0, column, rightCode, wrongCode)
          : suspicions.describe(0, column, wrongCode, rightCode);
        expect(sentence).toMatch(new RegExp(`; ${suspectedCause}\\?$`));
        expect(suspicions.difference(0, column, rightCode, wrongCode)).not.toContain("?");
        expect(suspicions.isTie(0, column, rightCode.code, wrongCode.code)).toBe(fraction === 0.5);
      },
    ),
    { numRuns: draws(200, 100) },
  );
});

it("is a lost subnormal only below the smallest normal number", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 15 }), fc.boolean(), (steps, isNegative) => {
      // 256 makes the scale 1; a step is the smallest subnormal of e4m3, and the code of up to 15 steps is their number
      const data = new Float32Array(COLUMNS).fill(256);
      data[1] = (isNegative ? -steps : steps) * 2 ** -9;
      const values = { data, dtype: "f32", shape: [1, COLUMNS] } as const;
      const suspicions = new Suspicions(values, { spec, context: { direction: "rowwise" } });
      const rightCode = steps + (isNegative ? SIGN : 0);
      const sentence = suspicions.describe(0, 1, { code: rightCode, scale: 127 }, { code: 0, scale: 127 });
      expect(sentence.includes("subnormals flushed to zero"), `${steps} steps: ${sentence}`).toBe(steps < 8);
    }),
    { numRuns: draws(100, 80) },
  );
});
