/** Learning rates equal their formulas, computed in another way. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError, learningRateSchedule } from "../../../src/index.js";
import { draws } from "../harness/draws.js";

const options = fc
  .record({
    learningRate: fc.constantFrom(0, 1, 0.3, 6e-4),
    minLearningRate: fc.constantFrom(0, 0.1, 1e-5),
    warmupSteps: fc.nat(20),
    stable: fc.nat(20),
    decaySteps: fc.nat(20),
    decay: fc.constantFrom("constant", "linear", "cosine", "sqrt"),
  })
  .map(({ stable, ...rest }) => ({
    ...rest,
    totalSteps: Math.max(1, rest.warmupSteps + stable + rest.decaySteps),
  }));

describe("learningRateSchedule", () => {
  it("rises over the warmup, stays, and falls over the last steps; a cosine is right to some units in the last place", () => {
    const property = fc.property(options, (scheduleOptions) => {
      const {
        learningRate: high,
        minLearningRate: low,
        warmupSteps,
        decaySteps,
        totalSteps,
        decay,
      } = scheduleOptions;
      const rate = learningRateSchedule(scheduleOptions);
      const shape = {
        constant: () => 1,
        linear: (progress: number) => 1 - progress,
        cosine: (progress: number) => Math.cos((Math.PI * progress) / 2) ** 2,
        sqrt: (progress: number) => 1 - Math.sqrt(progress),
      };
      for (let step = 1; step <= totalSteps + 3; step++) {
        const stable = totalSteps - decaySteps + 1;
        // the square root of IEEE 754 is rounded correctly on every machine, the cosine of JavaScript is not
        const tolerance = decay === "cosine" ? 2 ** -48 * Math.max(high, low) : 0;
        const closeTo = (expected: number) =>
          expect(Math.abs(rate(step) - expected)).toBeLessThanOrEqual(tolerance);
        if (step <= warmupSteps) expect(rate(step)).toBe((high * step) / warmupSteps);
        else if (step <= stable) expect(rate(step)).toBe(high);
        else if (step > totalSteps) expect(rate(step)).toBe(low);
        else closeTo(low + (high - low) * shape[decay]((step - stable) / decaySteps));
      }
    });
    // 0.1 * 3 / 3 is not 0.1
    const example = { learningRate: 0.1, minLearningRate: 0, warmupSteps: 3, decaySteps: 1, totalSteps: 4 };
    const root = { learningRate: 1, minLearningRate: 0, warmupSteps: 0, decaySteps: 7, totalSteps: 7 };
    const examples = [[{ ...example, decay: "linear" }], [{ ...root, decay: "sqrt" }]] as [[never], [never]];
    fc.assert(property, { numRuns: draws(200), examples });
  });

  it("has these rates on every machine", () => {
    const rate = learningRateSchedule({ learningRate: 1, warmupSteps: 2, totalSteps: 8 });
    const rates = [1, 2, 3, 4, 5, 6, 7, 8, 9].map(rate);
    expect(rates).toEqual([0.5, 1, 1, 0.9330127018922193, 0.75, 0.5, 0.25, 0.0669872981077807, 0]);
  });

  it("decays over all steps after the warmup by default, to 0, and a constant rate stays", () => {
    expect(
      [3, 5, 7].map(
        learningRateSchedule({ learningRate: 4, warmupSteps: 2, totalSteps: 6, decay: "linear" }),
      ),
    ).toEqual([4, 2, 0]);
    expect([1, 9].map(learningRateSchedule({ learningRate: 4, totalSteps: 6, decay: "constant" }))).toEqual([
      4, 4,
    ]);
  });

  it("refuses more steps of warmup and decay than steps in total, and an invalid step", () => {
    expect(() =>
      learningRateSchedule({ learningRate: 1, warmupSteps: 5, decaySteps: 6, totalSteps: 10 }),
    ).toThrow(ArgumentError);
    expect(() => learningRateSchedule({ learningRate: 1, totalSteps: 9, steps: 1 } as never)).toThrow(
      /steps/,
    );
    const rate = learningRateSchedule({ learningRate: 1, totalSteps: 10 });
    for (const step of [0, -1, 0.5, Number.NaN]) expect(() => rate(step)).toThrow(ArgumentError);
  });
});
