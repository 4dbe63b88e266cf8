/** The ranges of rows that are read together. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { rowRanges, rowsAtATime } from "../../../../src/checkpoints/stored/code-rows.js";
import { draws } from "../../harness/draws.js";

const SHAPE = fc.tuple(
  fc.integer({ min: 0, max: 3 }),
  fc.integer({ min: 0, max: 700 }),
  fc.integer({ min: 0, max: 9000 }),
);

it("cover every row once, in order, and a tensor without elements has none", () => {
  fc.assert(
    fc.property(SHAPE, fc.constantFrom(4, 8, 16, 32), ([matrices, height, columns], bits) => {
      const ranges = [...rowRanges([matrices, height, columns], bits)];
      const rows = ranges.flatMap(({ matrix, row, rows: count }) =>
        Array.from({ length: count }, (_, i) => matrix * height + row + i),
      );
      const expected = columns === 0 ? 0 : matrices * height;
      expect(rows).toEqual(Array.from({ length: expected }, (_, i) => i));
      for (const range of ranges) {
        expect(range.columns).toBe(columns);
        expect(range.rows).toBeLessThanOrEqual(rowsAtATime((columns * bits) / 8));
      }
    }),
    { numRuns: draws(200) },
  );
});
