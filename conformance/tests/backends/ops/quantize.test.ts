/**
 * The position of a matrix in a larger one selects random bits. It is accepted exactly if all elements lie inside the larger
 * matrix and the pieces begin and end at boundaries of draws of 16 elements.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { MatrixPart } from "../../../../src/backends/ops/quantize.js";
import { ShapeError } from "../../../../src/errors.js";
import { zeros } from "../../../../src/ops/create.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { makeSpec } from "../../../../src/tensor/spec.js";
import { SpecQuantizer } from "../../../operations/quantize/quantized.js";
import { draws } from "../../harness/draws.js";
import { useBackend } from "../../harness/suite.js";

const backend = useBackend({ threads: 1 });
const spec = makeSpec("nvfp4", { stochastic: true });
const LAYOUT = { rowwise: true, columnwise: false, scaleLayout: "logical" } as const;
const DRAWN_TOGETHER = 16;

/** Whether a [rows, columns] matrix can be the part, by the position of each of its elements. */
function isPart(part: MatrixPart, rows: number, columns: number): boolean {
  const isCount = (size: number): boolean => Number.isInteger(size) && size >= 0;
  if (!Object.values(part).every(isCount) || part.width === 0) return false;
  const isWholeDown = part.row === 0 && part.rows === rows;
  const multiples = [part.columns, part.column, part.width, part.stride, part.row];
  if (!isWholeDown) multiples.push(part.rows);
  if (multiples.some((size) => size % DRAWN_TOGETHER !== 0)) return false;
  for (let row = 0; row < rows; row++) if (part.row + row >= part.rows) return false;
  for (let column = 0; column < columns; column++) {
    const piece = Math.floor(column / part.width);
    if (part.column + piece * part.stride + (column - piece * part.width) >= part.columns) return false;
  }
  return true;
}

/** Multiples of 16, their neighbours, and values that are not sizes. */
const size = (...usual: readonly number[]) =>
  fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...usual) },
    fc
      .constantFrom(...usual)
      .chain((usualSize) => fc.constantFrom(usualSize + 1, usualSize + 8, usualSize - 16)),
    fc.constantFrom(0, -16, 0.5, 16.5, Number.NaN),
  );

const input = fc.record({
  shape: fc.tuple(fc.constantFrom(16, 32, 5, 17), fc.constantFrom(0, 16, 32, 48)),
  part: fc.record({
    rows: size(16, 32, 48, 5, 17),
    columns: size(32, 48, 96),
    row: size(0, 0, 16),
    column: size(0, 16, 32),
    width: size(16, 32, 48),
    stride: size(0, 16, 32, 48),
  }),
});

/** Numbers at both ends of every limit. */
const [rows, columns] = [32, 48];
const wholeMatrix = { rows, columns, row: 0, column: 0, width: columns, stride: 0 };
const EXAMPLES: readonly MatrixPart[] = [
  wholeMatrix,
  { ...wholeMatrix, rows: 40 },
  { ...wholeMatrix, rows: 31 },
  { ...wholeMatrix, rows: 48, row: 16 },
  { ...wholeMatrix, rows: 48, row: 32 },
  { ...wholeMatrix, columns: 32 },
  { ...wholeMatrix, columns: 64, column: 16 },
  { ...wholeMatrix, columns: 64, column: 32 },
  { ...wholeMatrix, columns: 80, width: 16, stride: 32 },
  { ...wholeMatrix, columns: 64, width: 16, stride: 32 },
  { ...wholeMatrix, width: 0 },
  // the last piece ends before the first
  { ...wholeMatrix, columns: 16, width: 32 },
  { ...wholeMatrix, stride: -16 },
];

it("is accepted exactly if its elements are inside and its draws are complete", () => {
  let acceptedCount = 0;
  fc.assert(
    fc.property(input, ({ shape: [rowCount, columnCount], part }) => {
      using _scope = new Scope();
      const quantizer = new SpecQuantizer(spec, LAYOUT, { part });
      const run = () => quantizer.quantize(zeros(backend(), "bf16", [rowCount, columnCount]));
      if (isPart(part, rowCount, columnCount)) {
        acceptedCount++;
        run();
      } else expect(run).toThrow(ShapeError);
    }),
    { numRuns: draws(1500), examples: EXAMPLES.map((part) => [{ shape: [rows, columns], part }]) },
  );
  expect(acceptedCount).toBeGreaterThan(draws(1500) / 30);
});

it("is ignored without stochastic rounding", () => {
  using _scope = new Scope();
  const nearest = makeSpec("nvfp4", {});
  const part = { ...wholeMatrix, width: 0 };
  const quantizedPart = new SpecQuantizer(nearest, LAYOUT, { part }).quantize(
    zeros(backend(), "bf16", [rows, columns]),
  );
  expect(quantizedPart.shape).toEqual([rows, columns]);
});
