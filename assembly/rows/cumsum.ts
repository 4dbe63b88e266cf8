// Cumulative sums of rows (docs/numerics.md 7.19).
import { CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { CumsumTask } from "./cumsum.gen";

/** Writes the sums of the rows [begin, end). `scratch` is one buffer of the calling thread (core/scratch.ts). */
export function cumsum(task: CumsumTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    let sum: f32 = 0;
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      const first = row * columns + (task.reverse ? columns - i - count : i);
      widen(task.x, task.xType, first, count, scratch);
      sum = accumulate(scratch, count, sum, task.reverse);
      narrow(scratch, task.out, task.outType, first, count);
    }
  }
}

/** Replaces each value by the sum of `sum` and all values up to it, in order or in reverse, and returns the last one. */
function accumulate(values: usize, count: usize, sum: f32, reverse: bool): f32 {
  for (let i: usize = 0; i < count; i++) {
    const value = values + ((reverse ? count - 1 - i : i) << 2);
    sum += load<f32>(value);
    store<f32>(value, sum);
  }
  return sum;
}
