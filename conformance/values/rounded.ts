/** Converts results of oracles to tensors: each f32 value is rounded once to the result's type. */
import { SCALAR_FORMATS } from "../../src/formats/scalar.js";
import { isWide, type Shape, type WideDType } from "../../src/tensor/shape.js";
import { bitsOf, mul } from "../oracle/core/rational.js";
import { encode } from "../oracle/core/scalar.js";
import { fromCodes, type PlainTensor, wideValues } from "./plain.js";

/** The types of results. */
export type ResultDType = WideDType | "e4m3" | "e5m2";

/** Rounds values to a type. Wide types overflow to infinity; FP8 multiplies the values by `scale` and saturates. */
export function rounded<D extends ResultDType>(
  dtype: D,
  shape: Shape,
  values: readonly number[],
  scale = 1,
): PlainTensor<D> {
  const target: ResultDType = dtype;
  if (target === "f32") return fromCodes(dtype, shape, values.map(bitsOf));
  const layout = SCALAR_FORMATS[target];
  const wide = isWide(target);
  const codes = values.map((x) =>
    encode(bitsOf(wide ? x : mul(x, scale)), layout, "tiesToEven", wide ? "nonfinite" : "saturate"),
  );
  return fromCodes(dtype, shape, codes);
}

/** The elements of a wide tensor, row by row. */
export function rowsOf(x: PlainTensor<WideDType>): number[][] {
  const [rows, columns] = x.matrix;
  const values = Array.from(wideValues(x));
  return Array.from({ length: rows }, (_, row) => values.slice(row * columns, (row + 1) * columns));
}

/** The results of `row` for each row of x, rounded to a type, in the shape of x. */
export function mapRows<D extends ResultDType>(
  x: PlainTensor<WideDType>,
  dtype: D,
  row: (elements: readonly number[], index: number) => readonly number[],
): PlainTensor<D> {
  return rounded(dtype, x.shape, rowsOf(x).flatMap(row));
}
