/** Dequantizes the weights of a checkpoint a few rows at a time. */

import { codeRows } from "./code-rows.js";
import { CODE_TYPES } from "./code-types.js";
import { readFloats, readScales, scaleOf } from "./scales.js";
import { matricesOf, type QuantizedWeight, type ScaleGeometry } from "./weight.js";

/** Values of consecutive elements. */
export interface ValueRows {
  /** The index of the first element. */
  readonly at: number;
  /** Valid until the next values are requested. */
  readonly values: Float64Array;
}

/** The index of an element's scale. Scales are ordered row by row, matrix by matrix. */
export function scaleIndexOf(
  { kind, block: [height, width], grid: [lines, blocks] }: ScaleGeometry,
  matrix: number,
  row: number,
  column: number,
): number {
  if (kind === "whole") return 0;
  return (matrix * lines + Math.floor(row / height)) * blocks + Math.floor(column / width);
}

/**
 * Yields the values of a weight in order. A value is the exact product of code, scale and, if there is one, the column's factor;
 * libraries round the product to f32. The scale is the block's scale multiplied or divided by the global scale, rounded to f32.
 * NaN codes and NaN scales give NaN.
 */
export async function* dequantizedRows(weight: QuantizedWeight): AsyncGenerator<ValueRows, undefined> {
  const scales = await readScales(weight);
  const [, width] = weight.geometry.block;
  const [, rows] = matricesOf(weight.shape);
  const codeValues = CODE_TYPES[weight.type].values;
  const factors = weight.factors && (await readFloats(weight.factors));
  let values = new Float64Array(0);
  for await (const { matrix, row, rows: count, columns, codes } of codeRows(weight)) {
    if (values.length !== codes.length) values = new Float64Array(codes.length);
    for (let i = 0; i < count; i++) {
      let index = scaleIndexOf(weight.geometry, matrix, row + i, 0);
      for (let begin = 0; begin < columns; begin += width, index++) {
        const scale = scaleOf(scales, scales.values[index] ?? Number.NaN);
        const end = i * columns + Math.min(columns, begin + width);
        for (let index = i * columns + begin; index < end; index++)
          values[index] = (codeValues[codes[index] ?? 0] ?? 0) * scale;
        if (!factors) continue;
        for (let column = begin, index = i * columns + begin; index < end; column++, index++)
          values[index] = (values[index] as number) * (factors[column] as number);
      }
    }
    yield { at: (matrix * rows + row) * columns, values };
  }
}
