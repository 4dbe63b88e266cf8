// The sequence and head of a tile, and the visible keys (numerics.md §10.1).

import { Slot, setSlot, slot } from "./frame";
import { AttentionTask } from "./task";

function lengthAt(pointer: usize, b: usize): i32 {
  return load<i32>(pointer + (b << 2));
}

/**
 * The first row of sequence b in the lower 32 bits, and the number of its rows in the upper 32 bits. Values outside the tensor's
 * `rows` rows are clamped.
 */
function rowsOf(task: AttentionTask, b: usize, lengths: usize, starts: usize, rows: i32): u64 {
  let first: i32 = 0;
  let length = rows;
  if (lengths) {
    length = lengthAt(lengths, b);
    if (task.cumulative) {
      first = starts ? lengthAt(starts, b) : length;
      length = lengthAt(lengths, b + 1) - length;
    }
    first = min(max(first, 0), rows);
    length = min(max(length, 0), rows - first);
  }
  return <u64>(<u32>first) | ((<u64>(<u32>length)) << 32);
}

/** Sets the sequence, and the head of the queries or the first of their heads. */
export function setSequence(task: AttentionTask, frame: usize, b: usize, head: usize): void {
  setSlot(frame, Slot.Batch, b);
  setHead(task, frame, head);
  const queries = rowsOf(task, b, task.queryLengths, task.queryStarts, <i32>task.queries);
  setSlot(frame, Slot.FirstQuery, <usize>(<u32>queries));
  setSlot(frame, Slot.QueryCount, <usize>(queries >> 32));
  const keys = rowsOf(task, b, task.keyLengths, task.keyStarts, <i32>task.keys);
  setSlot(frame, Slot.FirstKey, <usize>(<u32>keys));
  setSlot(frame, Slot.KeyCount, <usize>(keys >> 32));
}

/** The bytes of a row of the tile in Visible. */
export function visibleRow(frame: usize, row: u32): usize {
  return slot(frame, Slot.Visible) + <usize>row * slot(frame, Slot.Inner);
}

/** The values of a row of the tile in Scores or ScoreGrads. */
export function scoreRow(frame: usize, name: Slot, row: u32): usize {
  return slot(frame, name) + ((<usize>row * slot(frame, Slot.Inner)) << 2);
}

/** Sets the (first) head of the queries, and its head of keys and values. */
export function setHead(task: AttentionTask, frame: usize, head: usize): void {
  setSlot(frame, Slot.Head, head);
  setSlot(frame, Slot.KeyHead, (head * task.keyHeads) / task.heads);
}

/** The query of row `row` of the tile, in its sequence. */
export function queryOf(frame: usize, row: u32): u32 {
  return (<u32>slot(frame, Slot.TileFirst) + row) / <u32>slot(frame, Slot.TileHeads);
}

/** The head of row `row` of the tile. */
export function headOf(frame: usize, row: u32): usize {
  return (
    slot(frame, Slot.Head) + ((<u32>slot(frame, Slot.TileFirst) + row) % <u32>slot(frame, Slot.TileHeads))
  );
}

/** The position t of query i among the keys. */
export function positionOf(task: AttentionTask, frame: usize, i: i32): i32 {
  return task.alignsEnd ? i + <i32>slot(frame, Slot.KeyCount) - <i32>slot(frame, Slot.QueryCount) : i;
}

/** The first key in the window of a query at t, from 0. */
export function firstKey(task: AttentionTask, t: i32): i32 {
  const left = <i32>task.left;
  return left < 0 ? 0 : <i32>max<i64>(0, <i64>t - left);
}

/** One more than the last key in the window of a query at t. */
export function endKey(task: AttentionTask, frame: usize, t: i32): i32 {
  const right = <i32>task.right;
  const keys = <i32>slot(frame, Slot.KeyCount);
  return right < 0 ? keys : <i32>min<i64>(keys, max<i64>(0, <i64>t + right + 1));
}

/**
 * Writes one byte for each key of the block to the row `row` of Visible: 1 if the query of the row sees it, else 0. Returns the
 * number of visible keys.
 */
export function fillVisible(task: AttentionTask, frame: usize, row: u32): i32 {
  const i = <i32>queryOf(frame, row);
  const first = <i32>slot(frame, Slot.BlockKey);
  const count = <i32>slot(frame, Slot.BlockCount);
  const visible = visibleRow(frame, row);
  const t = positionOf(task, frame, i);
  const begin = max(firstKey(task, t) - first, 0);
  const end = min(endKey(task, frame, t) - first, count);
  memory.fill(visible, 0, count);
  if (begin >= end) return 0;
  memory.fill(visible + begin, 1, end - begin);
  const mask = task.mask;
  if (!mask) return end - begin;
  const hiddenRow =
    mask +
    slot(frame, Slot.Batch) * task.maskBatch +
    headOf(frame, row) * task.maskHead +
    <usize>i * task.keys +
    <usize>first;
  let hidden = 0;
  for (let j = begin; j < end; j++) {
    if (load<u8>(hiddenRow + j) === 0) continue;
    store<u8>(visible + j, 0);
    hidden++;
  }
  return end - begin - hidden;
}
