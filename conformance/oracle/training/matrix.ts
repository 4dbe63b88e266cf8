/** Matrices of wide types in plain numbers, and operations that round each element once. */
import { SCALAR_FORMATS } from "../../../src/formats/scalar.js";
import type { Source, WideName } from "../quantize/quantize.js";
import { chunkedSum } from "../rows/norm.js";

/** Rows and columns of values that `dtype` can represent. Leading dimensions are flattened. */
export type Matrix = Source;

const FLOATS = {
  bf16: { fractionBits: SCALAR_FORMATS.bf16.mantissaBits, least: 1 - SCALAR_FORMATS.bf16.bias, most: 128 },
  f16: { fractionBits: SCALAR_FORMATS.f16.mantissaBits, least: 1 - SCALAR_FORMATS.f16.bias, most: 16 },
};

/** Rounds an f32 value to `dtype`, ties to even; overflow gives infinity. */
function roundNumber(x: number, dtype: WideName): number {
  const value = Math.fround(x);
  if (dtype === "f32" || value === 0 || !Number.isFinite(value)) return value;
  const { fractionBits, least, most } = FLOATS[dtype];
  const ulp = 2 ** (Math.max(exponentOf(value), least) - fractionBits);
  const units = Math.abs(value) / ulp;
  const floor = Math.floor(units);
  const remainder = units - floor;
  const roundsUp = remainder > 0.5 || (remainder === 0.5 && floor % 2 === 1);
  const magnitude = (roundsUp ? floor + 1 : floor) * ulp;
  const finiteOrInfinite = magnitude >= 2 ** most ? Number.POSITIVE_INFINITY : magnitude;
  return value < 0 ? -finiteOrInfinite : finiteOrInfinite;
}

/** floor(log2 |x|) of a finite nonzero f32; -127 for subnormal numbers. */
export function exponentOf(x: number): number {
  const bits = new Uint32Array(Float32Array.of(x).buffer)[0] as number;
  return ((bits >>> 23) & 255) - 127;
}

/** The matrix whose elements are `at(row, column)`, rounded from f32. */
export function matrix(
  shape: readonly [rows: number, columns: number],
  dtype: WideName,
  elementAt: (row: number, column: number) => number,
): Matrix {
  const [rows, columns] = shape;
  const data = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) data[i * columns + j] = roundNumber(elementAt(i, j), dtype);
  return { data, shape, dtype };
}

export function ofRows(rows: readonly (readonly number[])[], columns: number, dtype: WideName): Matrix {
  return matrix([rows.length, columns], dtype, (i, j) => rows[i]?.[j] as number);
}

/** A matrix of one row. */
export function ofRow(row: readonly number[], dtype: WideName): Matrix {
  return ofRows([row], row.length, dtype);
}

export function cast(x: Matrix, dtype: WideName): Matrix {
  return { ...x, dtype, data: x.data.map((value) => roundNumber(value, dtype)) };
}

export function rowsOf({ data, shape: [rows, columns] }: Matrix): number[][] {
  return Array.from({ length: rows }, (_, i) => [...data.subarray(i * columns, (i + 1) * columns)]);
}

/** x + y in f32, rounded to `dtype`, which defaults to the type of x. */
export function sum(x: Matrix, y: Matrix, dtype = x.dtype): Matrix {
  return { ...x, dtype, data: x.data.map((value, i) => roundNumber(value + (y.data[i] as number), dtype)) };
}

/** Applies `f` to each element and rounds the results to `dtype`. */
export function mapMatrix(x: Matrix, f: (value: number, i: number) => number, dtype = x.dtype): Matrix {
  return { ...x, dtype, data: x.data.map((value, i) => roundNumber(f(value, i), dtype)) };
}

/** The column sums (numerics.md §7.5) as a matrix of one row. */
export function columnSums(x: Matrix, dtype: WideName): Matrix {
  const rows = rowsOf(x);
  const columns = Array.from({ length: x.shape[1] }, (_, j) => j);
  return ofRow(
    columns.map((j) => chunkedSum(rows.map((row) => row[j] as number))),
    dtype,
  );
}
