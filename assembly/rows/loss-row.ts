// The terms of a row's cross-entropy: the maximum, and two sums over the logits from index `first` on. A task has the fields
// `logits`, `logitsType` and `columns`. `scratch` is two buffers of the calling thread (core/scratch.ts).
import { addScalar, exponentials, fill } from "../core/chunk";
import { addTerms, foldLanes, maximumOf } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { widen } from "../core/wide";

/** max(x) + 0, NaN ignored; -infinity if all are NaN. */
export function maximumOfRow<Task>(task: Task, first: usize, scratch: usize): f32 {
  const columns = task.columns;
  let top: f32 = -Infinity;
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(task.logits, task.logitsType, first + i, count, scratch);
    top = maximumOf(scratch, count, top);
  }
  return top + 0;
}

/** sum(e^(x - maximum)). */
export function totalOfRow<Task>(task: Task, first: usize, maximum: f32, scratch: usize): f32 {
  const columns = task.columns;
  const lanes = scratch + BUFFER;
  fill(lanes, 0, 32);
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(task.logits, task.logitsType, first + i, count, scratch);
    exponentials(scratch, maximum, count);
    addTerms(lanes, scratch, count);
  }
  return foldLanes(lanes);
}

/** sum(x - maximum). */
export function distanceOfRow<Task>(task: Task, first: usize, maximum: f32, scratch: usize): f32 {
  const columns = task.columns;
  const lanes = scratch + BUFFER;
  fill(lanes, 0, 32);
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(task.logits, task.logitsType, first + i, count, scratch);
    addScalar(scratch, -maximum, count);
    addTerms(lanes, scratch, count);
  }
  return foldLanes(lanes);
}

/** The loss of a row whose target is one of `classes`. `targetDistance` is x_t - maximum, and `distance` is sum(x - maximum). */
export function smoothed(
  logTotal: f32,
  targetDistance: f32,
  distance: f32,
  classes: usize,
  smoothing: f32,
): f32 {
  const value = logTotal - targetDistance;
  if (smoothing === 0) return value;
  const uniform = logTotal - distance / <f32>classes;
  return (<f32>1 - smoothing) * value + smoothing * uniform;
}
