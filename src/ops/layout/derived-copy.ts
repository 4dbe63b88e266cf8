/** The columnwise copy of a quantized tensor, derived from its rowwise one without the tensor that was quantized. */
import { isDirectionless, tileSize } from "../../formats/block.js";
import { factsOf } from "../../formats/derive.js";
import { hasMinusZeros } from "../../formats/element-scalings.js";
import { copyGeometry } from "../../tensor/geometry.js";
import type { QuantizedCopy, QuantizedTensor, QuantizeSpec } from "../../tensor/quantized.js";
import { Scope } from "../../tensor/scope.js";
import { asMatrix, byteLength, type Shape, storageBits } from "../../tensor/shape.js";
import { Tensor } from "../../tensor/tensor.js";
import { fromBytes } from "../create.js";
import { relayout, relayoutScales, swapAxes, transpose } from "./layout.js";

/**
 * Derives the columnwise copy from the rowwise one. Scales must be per tensor or per square tile, and elements rounded to
 * nearest: `underivable` says whether that is so. The codes and scales are those that quantizing the source would give.
 *
 * @shared
 */
export function derivedCopy(t: QuantizedTensor): QuantizedCopy {
  using scope = new Scope();
  const matrix = asMatrix(t.shape);
  const rowwise = t.copy("rowwise");
  const geometry = copyGeometry(t.spec, matrix, "columnwise", t.scaleLayout);
  const logical = copyGeometry(t.spec, matrix, "columnwise", "logical");
  const scales = relayoutScales(t, "rowwise", "logical");
  const isStoredOnce = isDirectionless(t.spec);
  const transposed = geometry.data === "transposed";
  const [rows, columns] = transposed ? [...geometry.dataShape].reverse() : geometry.dataShape;
  const codes = withRows(rowwise.data, [rows as number, columns as number], zeroByte(t.spec));
  const data = transposed ? transpose(codes) : codes.clone();
  const ofColumns = isStoredOnce ? transpose(scales) : columnScales(scales, tileSize(t.spec.tile)[0]);
  const turned = geometry.blocksFirst ? transpose(ofColumns) : ofColumns;
  const scaleInv = relayout(turned, logical, geometry);
  const copy = { data: scope.keep(data), scaleInv: scope.keep(scaleInv), geometry };
  return rowwise.amax ? { ...copy, amax: scope.keep(rowwise.amax.clone()) } : copy;
}

/** Returns a byte of codes of zero, which fills the padding rows of the last blocks. */
function zeroByte({ format, elementScaling }: QuantizeSpec): number {
  if (!hasMinusZeros(elementScaling)) return 0;
  const minusZero = 2 ** (factsOf(format).bits - 1);
  return storageBits(format) === 4 ? minusZero * 17 : minusZero;
}

/**
 * Returns `x` as a matrix with further rows of `byte`, if it has fewer rows than `shape`. The open scope owns the result.
 */
function withRows(x: Tensor, shape: Shape, byte = 0): Tensor {
  const matrix = x.reshape(asMatrix(x.shape));
  if (matrix.shape[0] === shape[0]) return matrix;
  const padded = new Tensor(x.backend, x.dtype, shape).paste(matrix, 0);
  const missing = [(shape[0] as number) - (matrix.shape[0] as number), ...shape.slice(1)];
  const bytes = new Uint8Array(byteLength(x.dtype, missing)).fill(byte);
  return padded.paste(fromBytes(x.backend, bytes, missing, x.dtype), matrix.size);
}

/**
 * Returns the columnwise scales [K, tiles along M] of square tiles. In the rowwise scales [M, tiles along K], each tile of `size`
 * rows has its scale once per row; in the result, once per column.
 */
function columnScales(scales: Tensor, size: number): Tensor {
  const [rows, tileColumns] = scales.shape as readonly [number, number];
  const tileRows = Math.ceil(rows / size);
  const expanded = withRows(scales, [tileRows * size, tileColumns]).reshape([tileRows, size * tileColumns]);
  // the first row of each tile: [tileColumns, tileRows]
  const tileScales = transpose(expanded).slice(0, [tileColumns, tileRows]);
  const repeated = new Tensor(scales.backend, scales.dtype, [size, tileColumns, tileRows]);
  for (let i = 0; i < size; i++) repeated.paste(tileScales, i * tileScales.size);
  return swapAxes(repeated, 0, 1).reshape([tileColumns * size, tileRows]);
}
