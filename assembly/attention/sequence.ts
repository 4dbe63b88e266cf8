// The sequence and head of a tile, and which of its keys are visible (numerics.md §10.1).

import { Slot, setSlot, slot } from "./frame";
import { Field, valueOf } from "./task";

function lengthAt(pointer: usize, b: usize): i32 {
  return load<i32>(pointer + (b << 2));
}

/** Writes the first row and the number of rows of sequence b to two slots. Values outside the tensor are clamped to it. */
function setRows(
  task: usize,
  frame: usize,
  b: usize,
  lengths: usize,
  starts: usize,
  rows: i32,
  start: Slot,
  count: Slot,
): void {
  let first: i32 = 0;
  let length = rows;
  if (lengths) {
    length = lengthAt(lengths, b);
    if (valueOf(task, Field.Cumulative)) {
      first = starts ? lengthAt(starts, b) : length;
      length = lengthAt(lengths, b + 1) - length;
    }
    first = min(max(first, 0), rows);
    length = min(max(length, 0), rows - first);
  }
  setSlot(frame, start, first);
  setSlot(frame, count, length);
}

/** Sets the sequence and the head of the queries. */
export function setSequence(task: usize, frame: usize, b: usize, head: usize): void {
  setSlot(frame, Slot.Batch, b);
  setHead(task, frame, head);
  setRows(
    task,
    frame,
    b,
    valueOf(task, Field.QueryLengths),
    valueOf(task, Field.QueryStarts),
    <i32>valueOf(task, Field.Queries),
    Slot.FirstQuery,
    Slot.QueryCount,
  );
  setRows(
    task,
    frame,
    b,
    valueOf(task, Field.KeyLengths),
    valueOf(task, Field.KeyStarts),
    <i32>valueOf(task, Field.Keys),
    Slot.FirstKey,
    Slot.KeyCount,
  );
}

/** Sets the head of the queries, and the head of keys and values that it uses. */
export function setHead(task: usize, frame: usize, head: usize): void {
  setSlot(frame, Slot.Head, head);
  setSlot(frame, Slot.KeyHead, (head * valueOf(task, Field.KeyHeads)) / valueOf(task, Field.Heads));
}

/** The position t of query i among the keys. */
export function positionOf(task: usize, frame: usize, i: i32): i32 {
  return valueOf(task, Field.AlignsEnd)
    ? i + <i32>slot(frame, Slot.KeyCount) - <i32>slot(frame, Slot.QueryCount)
    : i;
}

/** The first key in the window of a query at t, from 0. */
export function firstKey(task: usize, t: i32): i32 {
  const left = <i32>valueOf(task, Field.Left);
  return left < 0 ? 0 : <i32>max<i64>(0, <i64>t - left);
}

/** One more than the last key in the window of a query at t. */
export function endKey(task: usize, frame: usize, t: i32): i32 {
  const right = <i32>valueOf(task, Field.Right);
  const keys = <i32>slot(frame, Slot.KeyCount);
  return right < 0 ? keys : <i32>min<i64>(keys, max<i64>(0, <i64>t + right + 1));
}

/** Writes one byte for each key of [first, first + count): 1 if query i sees it, else 0. Returns the number of visible keys. */
export function fillVisible(task: usize, frame: usize, i: i32, first: i32, count: i32, visible: usize): i32 {
  const t = positionOf(task, frame, i);
  const begin = max(firstKey(task, t) - first, 0);
  const end = min(endKey(task, frame, t) - first, count);
  memory.fill(visible, 0, count);
  if (begin >= end) return 0;
  memory.fill(visible + begin, 1, end - begin);
  const mask = valueOf(task, Field.Mask);
  if (!mask) return end - begin;
  const row =
    mask +
    slot(frame, Slot.Batch) * valueOf(task, Field.MaskBatch) +
    slot(frame, Slot.Head) * valueOf(task, Field.MaskHead) +
    <usize>i * valueOf(task, Field.Keys) +
    <usize>first;
  let hidden = 0;
  for (let j = begin; j < end; j++) {
    if (load<u8>(row + j) === 0) continue;
    store<u8>(visible + j, 0);
    hidden++;
  }
  return end - begin - hidden;
}
