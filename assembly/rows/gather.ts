// Elements of rows by index, and the gradient (docs/numerics.md 7.15).
import { loadWide, storeWide } from "../core/wide";
import { GatherBackwardTask, GatherTask } from "./gather.gen";

/** out[r, j] = x[r, ids[r, j]] for the rows [begin, end), or NaN if x [rows, columns] has no such column. */
export function gather(task: GatherTask, begin: usize, end: usize): void {
  const x = task.x;
  const xType = task.xType;
  const ids = task.ids;
  const out = task.out;
  const outType = task.outType;
  const columns = task.columns;
  const count = task.count;
  for (let row = begin; row < end; row++) {
    for (let i = row * count; i < (row + 1) * count; i++) {
      const id = load<u32>(ids + (i << 2));
      const value: f32 = id < <u32>columns ? loadWide(x, xType, row * columns + id) : NaN;
      storeWide(out, outType, i, value);
    }
  }
}

/** out[r, c] is the sum of those grad[r, j] whose ids[r, j] is c, for the rows [begin, end). grad and ids are [rows, count]. */
export function gatherBackward(task: GatherBackwardTask, begin: usize, end: usize): void {
  const grad = task.grad;
  const gradType = task.gradType;
  const ids = task.ids;
  const out = task.out;
  const outType = task.outType;
  const columns = task.columns;
  const count = task.count;
  for (let row = begin; row < end; row++) {
    const first = row * count;
    for (let column: usize = 0; column < columns; column++) {
      let sum: f32 = 0;
      for (let i = first; i < first + count; i++) {
        if (load<u32>(ids + (i << 2)) === <u32>column) sum += loadWide(grad, gradType, i);
      }
      storeWide(out, outType, row * columns + column, sum);
    }
  }
}
