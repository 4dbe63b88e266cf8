/** Where the code and the scale of one element lie in a copy of a quantized matrix. */
import { isTensorWide, scaleSpan } from "../formats/block.js";
import type { CopyGeometry, ScalePlacement } from "./geometry.js";
import type { QuantizeSpec } from "./quantized.js";

/** The line of an element in a copy, and its position along the line. Blocks lie along lines. */
export interface LinePlace {
  readonly line: number;
  readonly along: number;
}

/** Returns the line of element [row, column] of the source: rows of the rowwise copy, columns of the columnwise copy. */
export function linePlace(
  { direction }: Pick<CopyGeometry, "direction">,
  row: number,
  column: number,
): LinePlace {
  return direction === "rowwise" ? { line: row, along: column } : { line: column, along: row };
}

/** Returns the coordinate in the stored codes of element [row, column] of the source. */
export function codePlace(
  { data }: Pick<CopyGeometry, "data">,
  row: number,
  column: number,
): readonly [number, number] {
  return data === "transposed" ? [column, row] : [row, column];
}

/** Returns the index, in the stored scales of a copy, of the scale at a place. */
export function scaleIndex(
  spec: Pick<QuantizeSpec, "quantizer" | "tile">,
  { placement }: Pick<CopyGeometry, "placement">,
  { line, along }: LinePlace,
): number {
  if (isTensorWide(spec.tile)) return 0;
  const [lines, length] = scaleSpan(spec);
  return blockScaleIndex(placement, Math.floor(line / lines), Math.floor(along / length));
}

/** Returns the index, in the stored scales, of the scale of block `j` of line (or group of lines) `i`. */
export function blockScaleIndex(placement: ScalePlacement, i: number, j: number): number {
  if (placement.swizzled) return swizzledIndex(i, j, placement.blocks);
  return i * placement.lineStride + j * placement.blockStride;
}

/** The lines and blocks of a tile of the swizzled layout (numerics.md §4.6). */
export const SWIZZLE_TILE = [128, 4] as const;

/** Returns the index of the scale of block `j` of line `i` in the swizzled layout, where a line has `blocks` blocks. */
export function swizzledIndex(i: number, j: number, blocks: number): number {
  const [height, width] = SWIZZLE_TILE;
  const tile = Math.floor(i / height) * Math.ceil(blocks / width) + Math.floor(j / width);
  return tile * height * width + (i % 32) * 16 + Math.floor((i % height) / 32) * width + (j % width);
}
