// Mean squared error of each row of x against the row of target, in f32. C is `columns`, and d = x - target. Every
// operation is rounded, in the order written:
//
//   loss = sum(d d) / C          dx = (d (2 / C)) grad
//
// Sums have the order of core/reduce.ts. Every export takes `scratch`, eight buffers of the calling thread
// (core/scratch.ts).
import { fill, multiply, multiplyScalar } from "../core/chunk";
import { addTerms, foldLanes } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { MseBackwardTask, MseTask } from "./loss.gen";

/** Writes the loss (f32) of rows [begin, end). */
export function mse(task: MseTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const lanes = scratch + 2 * BUFFER;
  for (let row = begin; row < end; row++) {
    fill(lanes, 0, 32);
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      differences(task, row * columns + i, count, scratch);
      multiply(scratch, scratch, count);
      addTerms(lanes, scratch, count);
    }
    store<f32>(task.loss + (row << 2), foldLanes(lanes) / <f32>columns);
  }
}

/** Writes rows [begin, end) of dx. `grad` is the f32 gradient of each row's loss. */
export function mseBackward(task: MseBackwardTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const share: f32 = <f32>2 / <f32>columns;
  for (let row = begin; row < end; row++) {
    const upstream = load<f32>(task.grad + (row << 2));
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first = row * columns + i;
      differences(task, first, count, scratch);
      multiplyScalar(scratch, share, count);
      multiplyScalar(scratch, upstream, count);
      narrow(scratch, task.dx, task.dxType, first, count);
    }
  }
}

/** Writes x - target to `scratch`, for `count` elements starting at `index`. */
function differences<Task>(task: Task, index: usize, count: usize, scratch: usize): void {
  widen(task.x, task.xType, index, count, scratch);
  widen(task.target, task.targetType, index, count, scratch + BUFFER);
  subtract(scratch, scratch + BUFFER, count);
}

/** values[i] -= terms[i]. */
function subtract(values: usize, terms: usize, count: usize): void {
  for (const end = values + (count << 2); values < end; values += 16, terms += 16) {
    v128.store(values, f32x4.sub(v128.load(values), v128.load(terms)));
  }
}
