// Softmax cross-entropy of logits whose columns are divided among ranks, in three steps. Between the steps, the ranks combine
// first their maxima and then their sums. The formulas are in rows/loss.ts. V is the number of classes of all ranks, and `first`
// the class of this rank's first column.
//
// `scratch` is eight buffers of the calling thread (core/scratch.ts).
import { log } from "../core/math";
import { loadWide } from "../core/wide";
import { LossMaximumTask } from "./loss-parts.gen";
import { distanceOfRow, maximumOfRow, smoothed, totalOfRow } from "./loss-row";

/** Writes the maximum of rows [begin, end) over the columns of this rank, one f32 each per row. */
export function lossMaximum(task: LossMaximumTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    store<f32>(task.maximum + (row << 2), maximumOfRow(task, row * columns, scratch));
  }
}

/** The arguments of `lossSums`. */
@unmanaged
class LossSumsTask {
  logits: usize;
  logitsType: u32;
  columns: usize;
  targets: usize;
  maximum: usize;
  sums: usize;
  rows: usize;
  first: usize;
  smooths: bool;
}

/**
 * Writes columns [begin, end) of `sums`, f32 [2 or 3, rows]: the total over this rank's columns, the target's x - maximum (-0 if
 * the target is on another rank), and, with `smooths`, the sum of x - maximum. `maximum` is the maximum over all ranks.
 */
export function lossSums(task: LossSumsTask, scratch: usize, begin: usize, end: usize): void {
  const rows = task.rows;
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    const start = row * columns;
    const top = load<f32>(task.maximum + (row << 2));
    const target = load<i32>(task.targets + (row << 2));
    const targetColumn = <usize>target - task.first;
    let targetDistance: f32 = -0.0;
    if (target >= 0 && targetColumn < columns)
      targetDistance = loadWide(task.logits, task.logitsType, start + targetColumn) - top;
    store<f32>(task.sums + (row << 2), totalOfRow(task, start, top, scratch));
    store<f32>(task.sums + ((rows + row) << 2), targetDistance);
    if (task.smooths) {
      store<f32>(task.sums + ((2 * rows + row) << 2), distanceOfRow(task, start, top, scratch));
    }
  }
}

/** The arguments of `lossOfSums`. */
@unmanaged
class LossOfSumsTask {
  sums: usize;
  targets: usize;
  loss: usize;
  rows: usize;
  classes: usize;
  smoothing: f32;
  ignore: i32;
}

/** Writes the losses of rows [begin, end). `sums` are summed over all ranks; `classes` is V. */
export function lossOfSums(task: LossOfSumsTask, begin: usize, end: usize): void {
  const sums = task.sums;
  const targets = task.targets;
  const loss = task.loss;
  const rows = task.rows;
  const classes = task.classes;
  const smoothing = task.smoothing;
  const ignore = task.ignore;
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
