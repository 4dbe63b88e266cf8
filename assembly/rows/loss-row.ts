// The terms of a row's cross-entropy: the maximum, and two sums over the logits from index `first` on. `scratch` is two
// buffers of the calling thread (core/scratch.ts).
import { addScalar, exponentials, fill } from "../core/chunk";
import { addTerms, foldLanes, maximumOf } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { widen } from "../core/wide";

/** Logits, and the number of their columns. */
@unmanaged
export class Logits {
  logits: usize;
  logitsType: u32;
  columns: usize;
}

/** max(x) + 0, NaN ignored; -infinity if all are NaN. */
export function maximumOfRow(row: Logits, first: usize, scratch: usize): f32 {
  const columns = row.columns;
  let top: f32 = -Infinity;
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(row.logits, row.logitsType, first + i, count, scratch);
    top = maximumOf(scratch, count, top);
  }
  return top + 0;
}

/** sum(e^(x - maximum)). */
export function totalOfRow(row: Logits, first: usize, maximum: f32, scratch: usize): f32 {
  const columns = row.columns;
  const lanes = scratch + BUFFER;
  fill(lanes, 0, 32);
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(row.logits, row.logitsType, first + i, count, scratch);
    exponentials(scratch, maximum, count);
    addTerms(lanes, scratch, count);
  }
  return foldLanes(lanes);
}

/** sum(x - maximum). */
export function distanceOfRow(row: Logits, first: usize, maximum: f32, scratch: usize): f32 {
  const columns = row.columns;
  const lanes = scratch + BUFFER;
  fill(lanes, 0, 32);
  for (let i: usize = 0; i < columns; i += CHUNK) {
    const count = min(CHUNK, columns - i);
    widen(row.logits, row.logitsType, first + i, count, scratch);
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
