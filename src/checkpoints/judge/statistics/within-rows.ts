/** Correlations of scales and codes within rows and columns, which do not depend on the magnitudes of rows and columns. */
import type { Kernels } from "../../kernels/kernels.js";
import type { ByteScales } from "../../stored/byte-scales.js";
import { firstCodes } from "../../stored/code-rows.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import type { Scales } from "../../stored/scales.js";
import type { QuantizedWeight } from "../../stored/weight.js";
import { Correlation } from "./correlation.js";

/** Correlations of log scale and log RMS of codes, from which the means of rows and columns are subtracted. */
export interface WithinRows {
  /** The correlation in the stored scale layout. */
  readonly own: Correlation;
  /**
   * The correlation in the opposite scale layout. Absent if no coefficient can be twice as negative as the coefficient in the
   * stored layout.
   */
  readonly oppositeLayout?: Correlation;
}

/** Half of the least possible coefficient, -1. */
const HALF = -0.5;

/** The maximum numbers of rows and columns of blocks that are compared: full tiles of swizzled scales. */
const MAX_ROWS = 128;
const MAX_COLUMNS = 16;

/**
 * Compares the first blocks of the first matrix of a weight. Rows of different magnitudes dominate the correlation over all
 * blocks; differences within rows still show whether a scale belongs to its block. Undefined if scales have one layout only.
 */
export async function correlateWithinRows(
  kernels: Kernels,
  weight: QuantizedWeight,
  scales: Scales | ByteScales,
): Promise<WithinRows | undefined> {
  if (weight.geometry.kind !== "group" || !scales.oppositeLayout) return undefined;
  const [, columns] = weight.geometry.grid;
  const size = { rows: 0, columns: Math.min(columns, MAX_COLUMNS) };
  const codes = await firstRootMeanSquares(kernels, weight, size);
  const { own: ownAt, oppositeLayout: oppositeAt } = scalesAt(scales, columns);
  const correlateWith = (scaleAt: ScaleAt): Correlation => {
    const x = new Float64Array(codes.length);
    const y = codes.slice();
    for (let row = 0, i = 0; row < size.rows; row++)
      for (let column = 0; column < size.columns; column++, i++) {
        x[i] = Math.log2(scaleAt(row, column));
        if (Number.isFinite(x[i]) && Number.isFinite(y[i])) continue;
        x[i] = Number.NaN;
        y[i] = Number.NaN;
      }
    center(x, size.columns);
    center(y, size.columns);
    const correlation = new Correlation();
    for (let i = 0; i < x.length; i++) correlation.add(x[i] as number, y[i] as number);
    return correlation;
  };
  const own = correlateWith(ownAt);
  return own.coefficient <= HALF ? { own } : { own, oppositeLayout: correlateWith(oppositeAt) };
}

/** The scale of a block of the first matrix. */
type ScaleAt = (row: number, column: number) => number;

/**
 * Returns functions that return the scale of a block in the stored and in the opposite layout, for a grid with `columns` columns.
 * They return NaN for a scale that does not exist.
 */
function scalesAt(
  scales: Scales | ByteScales,
  columns: number,
): { readonly own: ScaleAt; readonly oppositeLayout: ScaleAt } {
  if (!("bytes" in scales)) {
    const scaleIn = (values: Float32Array | undefined): ScaleAt => {
      return (row, column) => values?.[row * columns + column] ?? Number.NaN;
    };
    return { own: scaleIn(scales.values), oppositeLayout: scaleIn(scales.oppositeLayout) };
  }
  const { bytes, oppositeLayout } = scales;
  const values = scales.valuesOf(0);
  return {
    own: (row, column) => values[bytes.bytes[row * columns + column] as number] as number,
    oppositeLayout: (row, column) =>
      oppositeLayout ? (values[oppositeLayout.at(row, column)] as number) : Number.NaN,
  };
}

/** The logarithm of the root mean square of the codes of each block. Sets `size.rows`. */
async function firstRootMeanSquares(
  kernels: Kernels,
  weight: QuantizedWeight,
  size: { rows: number; readonly columns: number },
): Promise<Float64Array> {
  const squaresOf = Float64Array.from(CODE_TYPES[weight.type].values, (value) => value ** 2);
  const [, width] = weight.geometry.block;
  const { rows, columns, codes } = await firstCodes(kernels, weight, MAX_ROWS, size.columns * width);
  size.rows = rows;
  const logarithms = new Float64Array(rows * size.columns);
  for (let row = 0, i = 0; row < rows; row++)
    for (let block = 0; block < size.columns; block++, i++) {
      let squares = 0;
      const end = Math.min(columns, (block + 1) * width);
      for (let column = block * width; column < end; column++)
        squares += squaresOf[codes[row * columns + column] as number] as number;
      logarithms[i] = Math.log2(squares / width) / 2;
    }
  return logarithms;
}

/** Subtracts the mean of each row, and then the mean of each column. Ignores NaN. */
function center(values: Float64Array, columns: number): void {
  const rows = values.length / columns;
  subtractMeans(values, rows, columns, (row, column) => row * columns + column);
  subtractMeans(values, columns, rows, (column, row) => row * columns + column);
}

function subtractMeans(
  values: Float64Array,
  lines: number,
  length: number,
  indexOf: (line: number, i: number) => number,
): void {
  for (let line = 0; line < lines; line++) {
    let [sum, count] = [0, 0];
    for (let i = 0; i < length; i++) {
      const value = values[indexOf(line, i)] as number;
      if (Number.isNaN(value)) continue;
      sum += value;
      count++;
    }
    for (let i = 0; i < length; i++) {
      const index = indexOf(line, i);
      values[index] = (values[index] as number) - sum / count;
    }
  }
}
