// Softmax cross entropy of logits[rows, V], where V is `columns`, and of one target class per row, in f32. Let t be the
// target and s the label smoothing. Every operation is rounded, in the order written:
//
//   maximum = max(x) + 0, NaN ignored        total = sum(e^(x - maximum))
//   loss = log(total) - (x_t - maximum) where s = 0, else
//          (1 - s) (log(total) - (x_t - maximum)) + s (log(total) - sum(x - maximum) / V)
//   dx_j = (e^(x_j - maximum) / total - q_j) grad, with q_j = s / V, and (1 - s) + s / V where j = t
//
// A target equal to `ignore` gives loss 0 and dx 0. Any other target outside [0, V) gives NaN. A row with a NaN, with
// +infinity, or with nothing but -infinity gives NaN as well. Sums have the order of core/reduce.ts.
//
// Every export takes `scratch`, eight buffers of the calling thread (core/scratch.ts).
import { addScalar, divideScalar, exponentials, fill, multiplyScalar } from "../core/chunk";
import { log } from "../core/math";
import { CHUNK } from "../core/scratch";
import { loadWide, narrow, widen } from "../core/wide";
import { CrossEntropyBackwardTask, CrossEntropyTask } from "./loss.gen";
import { distanceOfRow, maximumOfRow, smoothed, totalOfRow } from "./loss-row";

/** Writes the loss, the maximum and the total of rows [begin, end), one f32 each per row. `targets` are i32. */
export function crossEntropy(task: CrossEntropyTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const ignore = task.ignore;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    const top = maximumOfRow(task, first, scratch);
    const sum = totalOfRow(task, first, top, scratch);
    store<f32>(task.maximum + (row << 2), top);
    store<f32>(task.total + (row << 2), sum);
    const target = load<i32>(task.targets + (row << 2));
    let value: f32 = NaN;
    if (target === ignore) {
      value = 0;
    } else if (<usize>target < columns) {
      const targetDistance = loadWide(task.logits, task.logitsType, first + <usize>target) - top;
      const distance: f32 = task.smoothing === 0 ? 0 : distanceOfRow(task, first, top, scratch);
      value = smoothed(log(sum), targetDistance, distance, columns, task.smoothing);
    }
    store<f32>(task.loss + (row << 2), value);
  }
}

/**
 * Writes rows [begin, end) of dx. `grad` is the f32 gradient of each row's loss; `maximum` and `total` are the results of
 * `crossEntropy`. The columns are the classes from `first` on; `classes` is V.
 */
export function crossEntropyBackward(
  task: CrossEntropyBackwardTask,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const columns = task.columns;
  const first = task.first;
  const ignore = task.ignore;
  const off: f32 = task.smoothing / <f32>task.classes;
  const on: f32 = <f32>1 - task.smoothing + off;
  for (let row = begin; row < end; row++) {
    const start = row * columns;
    const target = load<i32>(task.targets + (row << 2));
    const isClass = target >= 0 && <usize>target < task.classes;
    const upstream: f32 = isClass ? load<f32>(task.grad + (row << 2)) : NaN;
    const top = load<f32>(task.maximum + (row << 2));
    const sum = load<f32>(task.total + (row << 2));
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      if (target === ignore) {
        fill(scratch, 0, count);
      } else {
        widen(task.logits, task.logitsType, start + i, count, scratch);
        exponentials(scratch, top, count);
        divideScalar(scratch, sum, count);
        const targetColumn = <usize>target - first - i;
        const targetValue: f32 = targetColumn < count ? load<f32>(scratch + (targetColumn << 2)) - on : 0;
        addScalar(scratch, -off, count);
        if (targetColumn < count) store<f32>(scratch + (targetColumn << 2), targetValue);
        multiplyScalar(scratch, upstream, count);
      }
      narrow(scratch, task.dx, task.dxType, start + i, count);
    }
  }
}
