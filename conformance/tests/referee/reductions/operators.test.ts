// Variances of small numbers are exact: the sum of squares divided by max(n - correction, 0).
import * as fc from "fast-check";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type Backend, openBackend } from "../../../../src/index.js";
import { Call } from "../../../../src/referee/call.js";
import { varianceAndMean } from "../../../../src/referee/reductions/operators.js";
import type { Value } from "../../../../src/referee/value.js";
import { draws } from "../../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 1 });
});
afterAll(() => backend.dispose());

const numberOf = (value: Value | undefined): number =>
  new Float32Array((value as Value).bytes.slice().buffer)[0] as number;

it("var_mean has the definition's bits for every correction, also one above the number of elements", () => {
  const choices = fc.record({
    // averages of one, two and four multiples of 12 are exact
    numbers: fc.constantFrom(1, 2, 4).chain((length) => {
      const number = fc.integer({ min: -9, max: 9 });
      return fc.array(number, { minLength: length, maxLength: length });
    }),
    correction: fc.constantFrom(0, 0.5, 1, 2, 3, 4, 5, 100),
  });
  fc.assert(
    fc.property(choices, ({ numbers, correction }) => {
      const x = numbers.map((number) => 12 * number);
      const bytes = new Uint8Array(Float32Array.from(x).buffer);
      const value: Value = { dtype: "F32", shape: [1, x.length], bytes };
      const [variance, mean] = varianceAndMean(
        new Call(backend, ["self", "dim"], [value, [1]], { correction }),
      );
      const average = x.reduce((sum, value) => sum + value, 0) / x.length;
      const squares = x.reduce((sum, value) => sum + (value - average) ** 2, 0);
      expect(numberOf(mean)).toBe(average);
      expect(numberOf(variance)).toBe(Math.fround(squares / Math.max(x.length - correction, 0)));
    }),
    { numRuns: draws(1000, 200), examples: [[{ numbers: [1, 2], correction: 3 }]] },
  );
});
