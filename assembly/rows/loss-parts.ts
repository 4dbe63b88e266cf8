// Softmax cross-entropy of logits whose columns are divided among ranks, in three steps. Between the steps, the ranks combine
// first their maxima and then their sums. The formulas are in rows/loss.ts. V is the number of classes of all ranks, and `first`
// the class of this rank's first column.
//
// `scratch` is eight buffers of the calling thread (core/scratch.ts).
import { log } from "../core/math";
import { loadWide } from "../core/wide";
import { distanceOfRow, maximumOfRow, smoothed, totalOfRow } from "./loss-row";

/** Writes the maximum of rows [begin, end) over the columns of this rank, one f32 each per row. */
export function lossMaximum(
  logits: usize,
  type: u32,
  maximum: usize,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  for (let row = begin; row < end; row++) {
    store<f32>(maximum + (row << 2), maximumOfRow(logits, type, row * columns, columns, scratch));
  }
}

/**
 * Writes columns [begin, end) of `sums`, f32 [2 or 3, rows]: the total over this rank's columns, the target's x - maximum (-0 if
 * the target is on another rank), and, with `smooths`, the sum of x - maximum. `maximum` is the maximum over all ranks.
 */
export function lossSums(
  logits: usize,
  type: u32,
  targets: usize,
  maximum: usize,
  sums: usize,
  rows: usize,
  columns: usize,
  first: usize,
  smooths: bool,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  for (let row = begin; row < end; row++) {
    const start = row * columns;
    const top = load<f32>(maximum + (row << 2));
    const target = load<i32>(targets + (row << 2));
    const targetColumn = <usize>target - first;
    let targetDistance: f32 = -0.0;
    if (target >= 0 && targetColumn < columns)
      targetDistance = loadWide(logits, type, start + targetColumn) - top;
    store<f32>(sums + (row << 2), totalOfRow(logits, type, start, columns, top, scratch));
    store<f32>(sums + ((rows + row) << 2), targetDistance);
    if (smooths) {
      store<f32>(sums + ((2 * rows + row) << 2), distanceOfRow(logits, type, start, columns, top, scratch));
    }
  }
}

/** Writes the losses of rows [begin, end). `sums` are summed over all ranks; `classes` is V. */
export function lossOfSums(
  sums: usize,
  targets: usize,
  loss: usize,
  rows: usize,
  classes: usize,
  smoothing: f32,
  ignore: i32,
  begin: usize,
  end: usize,
): void {
  for (let row = begin; row < end; row++) {
    const target = load<i32>(targets + (row << 2));
    let value: f32 = NaN;
    if (target === ignore) {
      value = 0;
    } else if (target >= 0 && <usize>target < classes) {
      const targetDistance = load<f32>(sums + ((rows + row) << 2));
      const distance: f32 = smoothing === 0 ? 0 : load<f32>(sums + ((2 * rows + row) << 2));
      value = smoothed(log(load<f32>(sums + (row << 2))), targetDistance, distance, classes, smoothing);
    }
    store<f32>(loss + (row << 2), value);
  }
}
