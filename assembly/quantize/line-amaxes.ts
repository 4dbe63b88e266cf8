// Computes the amaxes of full lines of a matrix or of its transpose.

import { Wide } from "../contract";
import { amaxRun } from "./amax";
import { loadPanel } from "./panel";

/**
 * Writes the amaxes of rows [row, row + height), NaN ignored, to `amaxes`. The matrix is as in loadPanel. It is read in panels of
 * `width` columns; `panel` is the buffer of a panel, and contains the last one afterwards. An f32 matrix that is not transposed
 * is read in place.
 */
export function lineAmaxes(
  src: usize,
  type: u32,
  rows: u32,
  columns: u32,
  transposed: u32,
  row: u32,
  height: u32,
  width: u32,
  panel: usize,
  amaxes: usize,
): void {
  const isInput = type === Wide.F32 && !transposed;
  memory.fill(amaxes, 0, (<usize>height) << 2);
  for (let c: u32 = 0; c < columns; c += width) {
    const w = min(width, columns - c);
    let pitch = w;
    let from = panel;
    if (isInput) {
      from = src + ((<usize>row * columns + c) << 2);
      pitch = columns;
    } else loadPanel(src, type, rows, columns, transposed, row, height, c, w, panel);
    for (let i: usize = 0; i < height; ++i) {
      const at = amaxes + (i << 2);
      store<f32>(at, max(load<f32>(at), amaxRun(from + ((i * pitch) << 2), w)));
    }
  }
}
