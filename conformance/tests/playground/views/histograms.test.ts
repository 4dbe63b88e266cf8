/** The shares of exact elements on the page equal each dialect's. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { percent } from "../../../../playground/src/words.js";
import { draws } from "../../harness/draws.js";
import { loadView, renderText } from "../../harness/playground-views.js";

const view = await loadView("histograms", "Histograms");

describe("the histograms of errors", () => {
  it("give the share of elements without an error for A and for B", () => {
    const sides = fc
      .array(fc.tuple(fc.boolean(), fc.boolean()), { minLength: 1, maxLength: 40 })
      .map((exact) => {
        const inputs = Float32Array.from(exact, (_, i) => 1 + i);
        const sideOf = (index: 0 | 1) => ({
          inputs,
          values: inputs.map((x, i) => (exact[i]?.[index] ? x : x + 1)),
          exact: exact.filter((pair) => pair[index]).length / exact.length,
        });
        return { a: sideOf(0), b: sideOf(1) };
      });
    fc.assert(
      fc.property(sides, ({ a, b }) => {
        const text = renderText(view, { pair: { a, b } });
        expect(text).toContain(`Exact: ${percent(a.exact)} of A, ${percent(b.exact)} of B`);
      }),
      { numRuns: draws(60) },
    );
  });
});
