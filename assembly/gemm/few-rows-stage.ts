// Converts rows of a block-scaled W to bf16, for products of few rows (gemm/few-rows.ts).

import { Staging, Wide } from "../contract";
import { decode } from "../core/minifloat";
import { narrow } from "../core/wide";
import { decodeLine } from "./decode-line";
import { Line } from "./pack";
import { ProductTask, paddedDepth, scaleRowOf } from "./task";

/** The bytes of the table of the 256 block scales, as f32. */
export const SCALES_BYTES: usize = 1024;

/**
 * Whether the elements of W are multiplied by block scales and rounded to bf16. Groups of rows are then first converted to
 * bf16.
 */
export function isStaged(task: ProductTask): bool {
  const record = task.w;
  return record.staging === Staging.Bf16 && record.scaleWord !== 0 && record.width <= 8;
}

/** Converts row `row` of W to bf16, padded with zeros to whole steps. The line of `to` has room for a row of f32. */
export function stageRow(task: ProductTask, to: Line, row: u32, scales: usize, target: usize): void {
  const line = to.line;
  const record = task.w;
  const depth = task.depth;
  decodeLine(record, to.table, row, depth, line);
  const block = record.block;
  let index = scaleRowOf(record, row);
  for (let k: u32 = 0; k < depth; k += block) {
    scaleValues(
      line + ((<usize>k) << 2),
      min(block, depth - k),
      load<f32>(scales + ((<usize>load<u8>(record.scale + index)) << 2)),
    );
    index += record.blockStride;
  }
  narrow(line, target, Wide.Bf16, 0, depth);
  memory.fill(target + ((<usize>depth) << 1), 0, (<usize>(paddedDepth(task) - depth)) << 1);
}

function scaleValues(values: usize, count: u32, scale: f32): void {
  const factor = f32x4.splat(scale);
  let i: usize = 0;
  for (const bytes = (<usize>count & ~3) << 2; i < bytes; i += 16)
    v128.store(values + i, v128.mul<f32>(v128.load(values + i), factor));
  for (const bytes = (<usize>count) << 2; i < bytes; i += 4)
    store<f32>(values + i, load<f32>(values + i) * scale);
}

/** Writes the values of all codes of W's block scales. */
export function fillScales(task: ProductTask, scales: usize): void {
  const word = task.w.scaleWord;
  for (let code: u32 = 0; code < 256; code++) store<u32>(scales + (code << 2), decode(code, word));
}
