/** The page shows the value of an element of a stored tensor, and the rows and columns of its block. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { draws } from "../../harness/draws.js";
import { loadView, renderText } from "../../harness/playground-views.js";

const view = await loadView("stored", "StoredPanel");

const size = fc.integer({ min: 1, max: 12 });
const stored = fc.record({
  rows: size,
  columns: size,
  block: fc.record({ rows: size, columns: size }),
  from: fc.tuple(fc.nat(300), fc.nat(300)),
  at: fc.tuple(fc.nat(14), fc.nat(14)),
});

describe("the panel of a stored tensor", () => {
  it("names the element, its value and the block of its scale by their places in the file", () => {
    fc.assert(
      fc.property(stored, ({ rows, columns, block, from, at: position }) => {
        const count = rows * columns;
        const [tileColumns, tileRows] = [Math.ceil(columns / block.columns), Math.ceil(rows / block.rows)];
        const values = Float32Array.from({ length: count }, (_, i) => i + 0.5);
        const panel = renderText(view, {
          stored: {
            ...{ format: "e4m3", rows, columns, block, values, from, notes: [], hasFields: true },
            ...{ codes: new Uint32Array(count), elements: new Float32Array(count), description: "a tensor" },
            scales: {
              ...{ format: "e8m0", blocks: tileColumns, lineRows: block.rows },
              codes: Uint32Array.from({ length: tileColumns * tileRows }, (_, i) => 100 + (i % 50)),
              values: Float32Array.from({ length: tileColumns * tileRows }, (_, i) => 2 ** ((i % 50) - 27)),
            },
          },
          params: { stored: "value", at: position.join(), theme: "light" },
          set: () => {},
        });
        const [row, column] = [Math.min(position[0], rows - 1), Math.min(position[1], columns - 1)];
        expect(panel).toContain(
          `Row ${from[0] + row}, column ${from[1] + column}: ${values[row * columns + column]} `.trim(),
        );
        const top = Math.floor(row / block.rows) * block.rows;
        const left = Math.floor(column / block.columns) * block.columns;
        const [bottom, right] = [
          Math.min(top + block.rows, rows) - 1,
          Math.min(left + block.columns, columns) - 1,
        ];
        const label = `rows ${from[0] + top} to ${from[0] + bottom}, columns ${from[1] + left} to ${from[1] + right}`;
        expect(panel).toContain(`${label}value`);
      }),
      { numRuns: draws(60) },
    );
  });
});
