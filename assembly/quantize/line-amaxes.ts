// Computes the amaxes of full lines of a matrix or of its transpose.

import { amaxRun } from "./amax";
import { openPanel, Panel } from "./panel";

/**
 * Writes the amaxes of the rows of a panel over all columns of its matrix, NaN ignored, to `amaxes`. The matrix is read in panels
 * of `width` columns. The panel is open for the last of them afterwards.
 */
export function lineAmaxes(panel: Panel, width: u32, amaxes: usize): void {
  const height = <usize>panel.height;
  const columns = panel.columns;
  memory.fill(amaxes, 0, height << 2);
  for (let c: u32 = 0; c < columns; c += width) {
    const w = min(width, columns - c);
    openPanel(panel, c, w);
    const values = panel.values;
    const pitch = <usize>panel.pitch;
    for (let i: usize = 0; i < height; ++i) {
      const at = amaxes + (i << 2);
      store<f32>(at, max(load<f32>(at), amaxRun(values + ((i * pitch) << 2), w)));
    }
  }
}
