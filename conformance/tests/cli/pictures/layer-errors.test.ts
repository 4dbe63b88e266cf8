/** The picture of the errors of layers. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type LayerErrors, layerErrorPicture } from "../../../../src/cli/pictures/layer-errors.js";
import { draws } from "../../harness/draws.js";

const error = fc.oneof(
  { weight: 8, arbitrary: fc.double({ min: 1e-12, max: 1e12, noNaN: true }) },
  fc.constantFrom(0, Number.NaN, Number.POSITIVE_INFINITY, Number.MIN_VALUE, Number.MAX_VALUE),
);
const forms: fc.Arbitrary<readonly LayerErrors[]> = fc.array(
  fc.record({ name: fc.string({ unit: "binary" }), errors: fc.array(error, { maxLength: 70 }) }),
  { maxLength: 30 },
);

/** The curves of a picture, as points. */
const curvesOf = (svg: string): (readonly [x: number, y: number])[][] =>
  Array.from(svg.matchAll(/<polyline points="([^"]*)"/g), ([, points = ""]) =>
    points
      .split(" ")
      .filter((point) => point !== "")
      .map((point) => point.split(",").map(Number) as [number, number]),
  );

describe("layerErrorPicture", () => {
  it("has a point for each positive finite error, left to right, larger errors higher, all inside of the plot", () => {
    fc.assert(
      fc.property(forms, (drawnForms) => {
        const curves = curvesOf(layerErrorPicture("title", drawnForms));
        expect(curves).toHaveLength(drawnForms.length);
        const positiveErrors = drawnForms.map(({ errors }) =>
          errors.filter((value) => value > 0 && Number.isFinite(value)),
        );
        expect(curves.map((values) => values.length)).toEqual(positiveErrors.map((errors) => errors.length));
        const points = curves.flat();
        for (const values of curves)
          for (const [i, [x]] of values.entries()) expect(x).toBeGreaterThan(values[i - 1]?.[0] ?? 0);
        const pairsByError = positiveErrors
          .flat()
          .map((values, i) => [values, points[i]?.[1] as number] as const)
          .sort(([a], [b]) => a - b);
        for (const [i, [, y]] of pairsByError.entries()) {
          expect(y).toBeGreaterThanOrEqual(52);
          expect(y).toBeLessThanOrEqual(372);
          expect(y).toBeLessThanOrEqual(pairsByError[i - 1]?.[1] ?? 372);
        }
      }),
      { numRuns: draws(200) },
    );
  });

  it("escapes names and the title", () => {
    const svg = layerErrorPicture('a < b & "c"', [{ name: "</text><script>", errors: [1] }]);
    expect(svg).toContain("<title>a &lt; b &amp; &quot;c&quot;</title>");
    expect(svg).toContain("&lt;/text&gt;&lt;script&gt;");
    expect(svg).not.toContain("<script");
  });

  it("counts errors that are not finite, and says when there is none to draw", () => {
    const svg = layerErrorPicture("t", [
      { name: "broken", errors: [0.1, Number.NaN, Number.POSITIVE_INFINITY] },
      { name: "same", errors: [0, 0, 0] },
    ]);
    expect(svg).toContain(">broken (2 not finite)</text>");
    expect(svg).toContain(">same (no error)</text>");
  });

  it("labels the decades that contain all errors", () => {
    const svg = layerErrorPicture("t", [{ name: "a", errors: [0.004, 0.3] }]);
    const labels = Array.from(svg.matchAll(/text-anchor="end">([^<]*)</g), ([, text]) => text);
    expect(labels).toEqual(["0.001", "0.01", "0.1", "1"]);
  });
});
