/** Reads a region of a tensor that this library quantized, with codes and scales as they are stored. */

import type { Backend } from "lockstep";
import { BLOCK_FORMATS, type BlockFormat, type Tensor, tileSize } from "lockstep";
import type { Checkpoint, LockstepWeightReport } from "lockstep/checkpoints/portable";
import { type Codes, codesOf, within } from "../reference/index.js";
import { MAX_SIZE } from "./numbers.js";

/** The codes, scales and values of a region, and its origin. */
export interface Stored extends Codes {
  readonly from: readonly [row: number, column: number];
  /** How the tensor is quantized, in a few words. */
  readonly description: string;
  /** Further notes, a sentence each. */
  readonly notes: readonly string[];
  /** Whether codes have sign, exponent and fraction of the format. */
  readonly hasFields: boolean;
}

/** A range of rows or columns. */
export interface Range {
  readonly from: number;
  readonly size: number;
}

/**
 * Reads the region of a quantized tensor that the page shows from [row, column] on. It begins at a block. Throws `FileError` for
 * tensors that are missing or misshapen, or if there is no rowwise copy.
 */
export async function readStored(
  backend: Backend,
  file: Checkpoint,
  name: string,
  [row, column]: readonly [number, number],
): Promise<Stored> {
  const weight = file.lockstepWeights.get(name) as LockstepWeightReport;
  const { shape, quantizer, format, tile, dtype } = weight;
  const width = shape.at(-1) ?? 1;
  const height = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  if (height * width === 0) throw new Error(`${file.path}: tensor ${name} is empty: [${shape}]`);
  const [tileRows, tileColumns] = stepOf(weight);
  const rows = rangeOf(row, height, tileRows);
  const columns = rangeOf(column, width, tileColumns);
  const region = { row: rows.from, column: columns.from, rows: rows.size, columns: columns.size };
  const quantized = await file.readQuantized(name, backend, region);
  return within(() => {
    try {
      const values = quantized.dequantize("f32") as Tensor<"f32">;
      return {
        ...codesOf(quantized, values, [rows.size, columns.size]),
        from: [rows.from, columns.from],
        description: `${quantizer}, ${format}, tiles of ${tile}, of a ${dtype} tensor [${shape.join(", ")}]`,
        notes: [],
        hasFields: true,
      };
    } finally {
      quantized.dispose();
    }
  });
}

/** The row and column steps of a region's origin. */
function stepOf({ quantizer, tile }: LockstepWeightReport): readonly [number, number] {
  const { multiple }: BlockFormat = BLOCK_FORMATS[quantizer];
  const [rows, columns] = tileSize(tile);
  const sharesLine = columns === 0 || columns === Number.POSITIVE_INFINITY;
  return [Math.max(rows, 1), Math.max(sharesLine ? 2 : columns, multiple)];
}

/** The rows or columns that are shown from an index on, in full blocks. */
function rangeOf(at: number, count: number, block: number): Range {
  const from = Math.floor(Math.min(at, count - 1) / block) * block;
  return { from, size: Math.min(MAX_SIZE, count - from) };
}
