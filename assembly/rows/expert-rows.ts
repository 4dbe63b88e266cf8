// Rows of tokens that are sorted by their experts (docs/numerics.md 7.16).
import { addEach, fill, multiply, multiplyScalar } from "../core/chunk";
import { addTerms, foldLanes } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { loadWide, narrow, storeWide, widen } from "../core/wide";
import { CombineRowsTask, RowDotsTask } from "./expert-rows.gen";

const NONE: u32 = 0xffffffff;

/** The arguments of `rowIdMap`. */
@unmanaged
class RowIdMapTask {
  routingMap: usize;
  count: usize;
  width: usize;
  indices: bool;
  experts: usize;
  align: usize;
  rows: usize;
  sources: usize;
  total: usize;
  tokensPerExpert: usize;
  next: usize;
}

/**
 * Writes three results: the row of each of `count` entries of a routing map whose rows have `width` entries; the entry of each of
 * `total` rows; and the number of rows of each expert. `next` is scratch memory for a count (u64) of each expert.
 */
export function rowIdMap(task: RowIdMapTask): void {
  const routingMap = task.routingMap;
  const count = task.count;
  const width = task.width;
  const indices = task.indices;
  const experts = task.experts;
  const align = task.align;
  const rows = task.rows;
  const sources = task.sources;
  const total = task.total;
  const tokensPerExpert = task.tokensPerExpert;
  const next = task.next;
  memory.fill(sources, 0xff, total << 2);
  memory.fill(next, 0, experts << 3);
  for (let i: usize = 0; i < count; i++) {
    const expert = expertOf(routingMap, i, width, indices, experts);
    if (expert < experts) store<usize>(next + (expert << 3), load<usize>(next + (expert << 3)) + 1);
  }
  let first: usize = 0;
  for (let expert: usize = 0; expert < experts; expert++) {
    const end = first + ((load<usize>(next + (expert << 3)) + align - 1) / align) * align;
    store<usize>(next + (expert << 3), first);
    store<u32>(tokensPerExpert + (expert << 2), <u32>(min(end, total) - min(first, total)));
    first = end;
  }
  for (let i: usize = 0; i < count; i++) {
    const expert = expertOf(routingMap, i, width, indices, experts);
    let row: u32 = NONE;
    if (expert < experts) {
      const place = load<usize>(next + (expert << 3));
      store<usize>(next + (expert << 3), place + 1);
      if (place < total) {
        row = <u32>place;
        store<u32>(sources + (place << 2), <u32>i);
      }
    }
    store<u32>(rows + (i << 2), row);
  }
}

/** The expert of entry i, or a number from `experts` on if it has none. */
function expertOf(routingMap: usize, i: usize, width: usize, indices: bool, experts: usize): usize {
  const value = load<u32>(routingMap + (i << 2));
  return indices ? <usize>value : value === 0 ? experts : i % width;
}

/** The arguments of `takeRows`. */
@unmanaged
class TakeRowsTask {
  x: usize;
  xType: u32;
  limit: usize;
  sources: usize;
  period: usize;
  weights: usize;
  weightsType: u32;
  out: usize;
  outType: u32;
  columns: usize;
}

/** Writes the rows [begin, end) of out. `scratch` is one buffer of the calling thread (core/scratch.ts). */
export function takeRows(task: TakeRowsTask, scratch: usize, begin: usize, end: usize): void {
  const weights = task.weights;
  const columns = task.columns;
  for (let row = begin; row < end; row++) {
    const source = <usize>load<u32>(task.sources + (row << 2));
    const isRow = source < task.limit;
    const first = isRow ? (source / task.period) * columns : 0;
    const weight: f32 = isRow && weights !== 0 ? loadWide(weights, task.weightsType, source) : 1;
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      if (isRow) widen(task.x, task.xType, first + i, count, scratch);
      else fill(scratch, 0, count);
      if (isRow && weights !== 0) multiplyScalar(scratch, weight, count);
      narrow(scratch, task.out, task.outType, row * columns + i, count);
    }
  }
}

/** Writes the rows [begin, end) of out. `scratch` is two buffers of the calling thread. */
export function combineRows(task: CombineRowsTask, scratch: usize, begin: usize, end: usize): void {
  const limit = task.limit;
  const rows = task.rows;
  const width = task.width;
  const weights = task.weights;
  const columns = task.columns;
  const total = scratch + BUFFER;
  for (let token = begin; token < end; token++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      fill(total, 0, count);
      for (let entry = token * width; entry < (token + 1) * width; entry++) {
        const row = <usize>load<u32>(rows + (entry << 2));
        if (row >= limit) continue;
        widen(task.x, task.xType, row * columns + i, count, scratch);
        if (weights !== 0) multiplyScalar(scratch, loadWide(weights, task.weightsType, entry), count);
        addEach(total, scratch, count);
      }
      narrow(total, task.out, task.outType, token * columns + i, count);
    }
  }
}

/** Writes the entries of the tokens [begin, end). `scratch` is three buffers of the calling thread. */
export function rowDots(task: RowDotsTask, scratch: usize, begin: usize, end: usize): void {
  const limit = task.limit;
  const rows = task.rows;
  const width = task.width;
  const columns = task.columns;
  const factors = scratch + BUFFER;
  const lanes = factors + BUFFER;
  for (let token = begin; token < end; token++) {
    for (let entry = token * width; entry < (token + 1) * width; entry++) {
      const row = <usize>load<u32>(rows + (entry << 2));
      fill(lanes, 0, 32);
      for (let i: usize = 0; row < limit && i < columns; i += CHUNK) {
        const count = min(CHUNK, columns - i);
        widen(task.grad, task.gradType, token * columns + i, count, scratch);
        widen(task.x, task.xType, row * columns + i, count, factors);
        multiply(scratch, factors, count);
        addTerms(lanes, scratch, count);
      }
      storeWide(task.out, task.outType, entry, foldLanes(lanes));
    }
  }
}
