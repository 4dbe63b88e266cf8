/** Where the code and the scale of one element lie in a copy of a quantized matrix. */
import { blockFormat, isTensorWide, tileSize } from "../formats/block.js";
import type { CopyGeometry } from "./geometry.js";
import type { QuantizeSpec } from "./quantized.js";
import { roundUp } from "./shape.js";

/** The line of an element in a copy and its position along the line, in which blocks lie. */
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
  { quantizer, tile }: Pick<QuantizeSpec, "quantizer" | "tile">,
  { placement }: Pick<CopyGeometry, "placement">,
  { line, along }: LinePlace,
): number {
  if (isTensorWide(tile)) return 0;
  const [lines, length] = tileSize(tile);
  const i = blockFormat(quantizer).replicates ? line : Math.floor(line / lines);
  const j = Math.floor(along / length);
  if (!placement.swizzled) return i * placement.lineStride + j * placement.blockStride;
  const across = roundUp(placement.blocks, SWIZZLED_BLOCKS) / SWIZZLED_BLOCKS;
  const tileIndex = Math.floor(i / SWIZZLED_LINES) * across + Math.floor(j / SWIZZLED_BLOCKS);
  const within = (i % 32) * 16 + Math.floor((i % SWIZZLED_LINES) / 32) * 4 + (j % SWIZZLED_BLOCKS);
  return tileIndex * SWIZZLED_LINES * SWIZZLED_BLOCKS + within;
}

/** The lines and blocks of a tile of the swizzled layout (numerics.md §4.6). */
const SWIZZLED_LINES = 128;
const SWIZZLED_BLOCKS = 4;
