/** Dequantizes a weight to a wide type, and counts the changes by rounding. */
import { WIDE } from "../../../formats/contract.gen.js";
import { elementCount } from "../../../tensor/shape.js";
import { CodeTables } from "../../kernels/code-tables.js";
import { countBytes } from "../../kernels/count-bytes.js";
import type { Kernels } from "../../kernels/kernels.js";
import { byteValues, countScaleBytes, hasByteScales, readScaleBytes } from "../../stored/byte-scales.js";
import { rowsAtATime } from "../../stored/code-rows.js";
import { CODE_TYPES } from "../../stored/code-types.js";
import { dequantizedRows } from "../../stored/dequantize.js";
import { readGlobal, readScales, scaleOf } from "../../stored/scales.js";
import { matricesOf, type QuantizedWeight } from "../../stored/weight.js";
import { Changes } from "../changes/changes.js";
import { Occurrences } from "../changes/occurrences.js";
import { encodeWide, roundTo, type WideTarget } from "./round.js";

type Append = (bytes: Uint8Array) => Promise<void>;

/** The number of bytes of codes to read at a time. */
const CHUNK_BYTES = 1 << 20;
/** The minimum number of elements of a block for which a table with the values of all 256 codes is faster. */
const MIN_BLOCK = 1024;
const BYTES_OF = { bf16: 2, f32: 4 } as const;

/** Writes the values of a weight by `append`, in order. Returns the changes by rounding. */
export async function writeDequantized(
  kernels: Kernels,
  weight: QuantizedWeight,
  target: WideTarget,
  append: Append,
): Promise<Changes> {
  const changes = new Changes();
  if (elementCount(weight.shape) === 0) return changes;
  if (isGrouped(weight)) await widenGroups(kernels, weight, target, append, changes);
  else if (isBlocked(weight)) await widenBlocks(kernels, weight, target, append, changes);
  else
    for await (const { values } of dequantizedRows(weight)) await append(encodeWide(target, values, changes));
  return changes;
}

/** Whether each row consists of full groups with one-byte scales, as `widenGroups` and `widenNibbles` require. */
function isGrouped(weight: QuantizedWeight): boolean {
  const { type, geometry, shape } = weight;
  const [, rows, columns] = matricesOf(shape);
  const { bits } = CODE_TYPES[type];
  const [height, width] = geometry.block;
  return (
    !weight.unpacked &&
    !weight.factors &&
    hasByteScales(weight) &&
    geometry.kind === "group" &&
    height === 1 &&
    geometry.grid[0] === rows &&
    geometry.grid[1] * width === columns &&
    (bits === 8 || (bits === 4 && width % 16 === 0))
  );
}

/** Whether codes have one byte, blocks are large enough for a table per block, and columns have no factors. */
function isBlocked({ type, geometry: { block }, shape, factors }: QuantizedWeight): boolean {
  const [, rows, columns] = matricesOf(shape);
  const [height, width] = [Math.min(block[0], rows), Math.min(block[1], columns)];
  return !factors && CODE_TYPES[type].bits === 8 && width >= 32 && height * width >= MIN_BLOCK;
}

async function widenGroups(
  kernels: Kernels,
  weight: QuantizedWeight,
  target: WideTarget,
  append: Append,
  changes: Changes,
): Promise<void> {
  const { codes: storedCodes, type, geometry } = weight;
  const [, width] = geometry.block;
  const { bits } = CODE_TYPES[type];
  const scales = await readScaleBytes(kernels, weight);
  const global = await readGlobal(weight);
  const tables = new CodeTables(kernels, type, 256);
  const values = byteValues(weight);
  const scale = values.map((value) => scaleOf(global, value));
  let changing = false;
  countScaleBytes(kernels, weight, scales).forEach((count, byte) => {
    if (count > 0 && tables.widen(byte, scale[byte] as number, WIDE[target])) changing = true;
  });
  const occurrences = changing ? new Occurrences(kernels, type) : undefined;
  const groupBytes = (width * bits) / 8;
  const step = Math.max(1, Math.floor(CHUNK_BYTES / groupBytes));
  for (let group = 0; group < scales.bytes.length; group += step) {
    const groups = Math.min(step, scales.bytes.length - group);
    const codes = kernels.buffer("codes", groups * groupBytes);
    const out = kernels.buffer("wide", groups * width * BYTES_OF[target]);
    await storedCodes.shard.readInto(storedCodes.entry, group * groupBytes, codes.bytes);
    occurrences?.add(codes.address, groups, groupBytes, scales.address + group);
    kernels.call(bits === 4 ? "widenNibbles" : "widenGroups", {
      codes: codes.address,
      rows: 1,
      width,
      pitch: width,
      table: tables.address,
      groups,
      scales: scales.address + group,
      tables: tables.address,
      stride: tables.stride,
      dst: out.address,
      type: WIDE[target],
    });
    if (!occurrences) changes.elements += groups * width;
    await append(out.bytes);
  }
  const round = roundTo(target);
  const codeValues = CODE_TYPES[type].values;
  occurrences?.addTo(changes, (byte, code) => {
    const value = (codeValues[code] as number) * (scale[byte] as number);
    return [value, round(value)];
  });
}

async function widenBlocks(
  kernels: Kernels,
  weight: QuantizedWeight,
  target: WideTarget,
  append: Append,
  changes: Changes,
): Promise<void> {
  const { codes: storedCodes, type, shape, geometry } = weight;
  const [matrices, rows, columns] = matricesOf(shape);
  const scales = await readScales(weight);
  const tables = new CodeTables(kernels, type, 1);
  const round = roundTo(target);
  const codeValues = CODE_TYPES[type].values;
  const isExact = !scales.values.some((value) => tables.widen(0, scaleOf(scales, value), WIDE[target]));
  /** Adds the changes of a block part, whose elements share one scale. */
  const count = (address: number, rows: number, width: number, scale: number): void => {
    for (const [code, occurs] of countBytes(kernels, { address, rows, width, pitch: columns }).entries()) {
      const value = (codeValues[code] as number) * scale;
      if (occurs > 0) changes.add(value, round(value), occurs);
    }
  };
  const step = Math.min(rows, rowsAtATime(columns));
  for (let matrix = 0; matrix < matrices; matrix++) {
    for (let row = 0; row < rows; row += step) {
      const rowCount = Math.min(step, rows - row);
      const codes = kernels.buffer("codes", rowCount * columns);
      const out = kernels.buffer("wide", rowCount * columns * BYTES_OF[target]);
      await storedCodes.shard.readInto(storedCodes.entry, (matrix * rows + row) * columns, codes.bytes);
      for (const block of blocksOf(geometry, matrix, row, rowCount, columns)) {
        const scale = scaleOf(scales, scales.values[block.index] ?? Number.NaN);
        tables.widen(0, scale, WIDE[target]);
        if (!isExact) count(codes.address + block.at, block.rows, block.width, scale);
        kernels.call("widenBlock", {
          codes: codes.address + block.at,
          rows: block.rows,
          width: block.width,
          pitch: columns,
          table: tables.address,
          dst: out.address + block.at * BYTES_OF[target],
          type: WIDE[target],
        });
      }
      if (isExact) changes.elements += rowCount * columns;
      await append(out.bytes);
    }
  }
}

/** The intersection of a block with the rows that are in memory. It has all columns of the block. */
interface BlockPart {
  /** The index of the scale of the block. */
  readonly index: number;
  /** The index of the first element of the part, among the rows that are in memory. */
  readonly at: number;
  readonly rows: number;
  readonly width: number;
}

/** The block parts in `count` rows of a matrix, beginning at row `first`. */
function* blocksOf(
  { kind, block, grid }: QuantizedWeight["geometry"],
  matrix: number,
  first: number,
  count: number,
  columns: number,
): Generator<BlockPart, undefined> {
  const [height, width] = block;
  for (let row = first; row < first + count; ) {
    const next = Math.min(first + count, (Math.floor(row / height) + 1) * height);
    const line = kind === "whole" ? 0 : matrix * grid[0] + Math.floor(row / height);
    for (let column = 0, index = line * grid[1]; column < columns; column += width, index++)
      yield {
        index,
        at: (row - first) * columns + column,
        rows: next - row,
        width: Math.min(width, columns - column),
      };
    row = next;
  }
}
