/** Reads the codes, scales and values of a region of a quantized weight. */
import type { ScalarFormat } from "../../formats/scalar.js";
import { elementCount } from "../../tensor/shape.js";
import { CODE_TYPES, unpackCodes } from "../stored/code-types.js";
import { scaleIndexOf } from "../stored/dequantize.js";
import { readFloats, readScales, scaleFormat, scaleOf, unswizzleScales } from "../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../stored/weight.js";
import { bytesOfCodes, type MatrixRegion } from "./region.js";

/** The scales of the blocks that a region overlaps, [lines, blocks]. */
export interface RegionScales {
  /** The format of the stored scales. */
  readonly format: ScalarFormat | "f32";
  /** The number of block rows that the region overlaps. */
  readonly lines: number;
  /** The number of block columns that the region overlaps. If groups are not consecutive columns, each column is a block. */
  readonly blocks: number;
  /** The stored codes of the scales, row by row. For f32 scales, their bits. */
  readonly codes: Uint32Array;
  /** The f32 values of the scales, without a global scale. */
  readonly values: Float32Array;
  /** The stored global scale. Absent if the weight has no global scale, or one global scale for each matrix. */
  readonly global?: number;
}

/** A region of a quantized weight. Arrays have one element for each element of the region, row by row. */
export interface WeightRegion extends MatrixRegion {
  /** The codes. */
  readonly codes: Uint32Array;
  /** The values of the codes, without scales. */
  readonly elements: Float32Array;
  /** The values of the weight: code times scale, rounded to f32. NaN codes and NaN scales give NaN. */
  readonly values: Float32Array;
  /** The scales of the blocks that the region overlaps. */
  readonly scales: RegionScales;
}

/** Reads a region that lies within one matrix of the weight. */
export async function readWeightRegion(weight: QuantizedWeight, region: MatrixRegion): Promise<WeightRegion> {
  const { geometry, shape, type, scale } = weight;
  const [, height] = matricesOf(shape);
  const [matrix, top] = [Math.floor(region.row / height), region.row % height];
  const [blockRows, blockColumns] = geometry.block;
  const codes = await readCodes(weight, region);
  const factors = weight.factors && (await readFloats(weight.factors));
  const weightScales = await readScales(weight);
  const storedCodes = codesOfScales(weight, await scale.shard.read(scale.entry));
  const firstLine = Math.floor(top / blockRows);
  const firstBlock = Math.floor(region.column / blockColumns);
  const lines = Math.floor((top + region.rows - 1) / blockRows) - firstLine + 1;
  const blocks = Math.floor((region.column + region.columns - 1) / blockColumns) - firstBlock + 1;
  const indices = Array.from({ length: lines * blocks }, (_, i) => {
    const [line, block] = [firstLine + Math.floor(i / blocks), firstBlock + (i % blocks)];
    return scaleIndexOf(geometry, matrix, line * blockRows, block * blockColumns);
  });
  const scales = Float32Array.from(indices, (index) => weightScales.values[index] ?? Number.NaN);
  const { values: codeValues } = CODE_TYPES[type];
  const elements = Float32Array.from(codes, (code) => codeValues[code] ?? Number.NaN);
  const values = elements.map((element, i) => {
    const [r, c] = [Math.floor(i / region.columns), i % region.columns];
    const line = Math.floor((top + r) / blockRows) - firstLine;
    const block = Math.floor((region.column + c) / blockColumns) - firstBlock;
    const factor = factors ? (factors[region.column + c] as number) : 1;
    return element * scaleOf(weightScales, scales[line * blocks + block] as number) * factor;
  });
  return {
    ...region,
    codes,
    elements,
    values,
    scales: {
      format: scale.entry.dtype === "F32" ? "f32" : scaleFormat(scale.entry.dtype),
      lines,
      blocks,
      codes: Uint32Array.from(indices, (index) => storedCodes[index] as number),
      values: scales,
      ...(weightScales.storedGlobal === undefined ? {} : { global: weightScales.storedGlobal }),
    },
  };
}

async function readCodes(
  { codes: { shard, entry }, shape, type, unpacked }: QuantizedWeight,
  { row, column, rows, columns }: MatrixRegion,
): Promise<Uint32Array> {
  const width = shape.at(-1) ?? 1;
  const bits = unpacked ? 8 * unpacked.width : CODE_TYPES[type].bits;
  const codes = new Uint32Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    const { offset, begin, end } = bytesOfCodes((row + r) * width + column, columns, bits);
    const bytes = await shard.read(entry, begin, end);
    if (bits === 16) {
      const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      for (let c = 0; c < columns; c++) codes[r * columns + c] = view.getUint16(2 * (offset + c), true);
      continue;
    }
    const line = new Uint8Array(offset + columns);
    if (unpacked) line.set(bytes);
    else unpackCodes(CODE_TYPES[type], bytes, line);
    codes.set(line.subarray(offset), r * columns);
  }
  return codes;
}

/** The codes of all scales, row by row, matrix by matrix. For f32 scales, their bits. */
function codesOfScales({ shape, geometry, scale }: QuantizedWeight, bytes: Uint8Array): Uint32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = elementCount(scale.entry.shape);
  const width = bytes.length / count;
  const codes = Uint32Array.from({ length: count }, (_, i) => {
    if (width === 4) return view.getUint32(4 * i, true);
    return width === 2 ? view.getUint16(2 * i, true) : view.getUint8(i);
  });
  return geometry.swizzled ? unswizzleScales(codes, matricesOf(shape)[0], geometry.grid) : codes;
}
