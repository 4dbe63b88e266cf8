// The forward pass of an attention (numerics.md §10). A unit is a tile of up to ROWS rows of one sequence and one head of keys
// and values. A row is a query of one of the heads that share these keys and values, which are packed once for all of them. No
// result depends on the division into units.

import { Kernel } from "../contract";
import { log } from "../core/math";
import { maximumOf } from "../core/reduce";
import { canonical, narrow, roundFour, widen } from "../core/wide";
import { fma32 } from "../gemm/datapath";
import {
  factorBlock,
  innerLength,
  openFrame,
  packedRows,
  padded,
  panelLength,
  ROW_STATE_BYTES,
  ROWS,
  Slot,
  STATE_BYTES,
  setSlot,
  slot,
} from "./frame";
import { addBlock, multiplyRows, openFactors, packFactors } from "./product";
import { applyScores, fillKept, log2e, logitFactor, scoreFactor } from "./scores";
import {
  endKey,
  fillVisible,
  firstKey,
  headOf,
  positionOf,
  queryOf,
  scoreRow,
  setSequence,
  visibleRow,
} from "./sequence";
import { addScores, baseOf, openRow, openSplit, powerOf, RowField, sumOf } from "./softmax";
import { AttentionTask, dataOf, indexOf, keyIndex, Operand } from "./task";

const LN2: f32 = <f32>reinterpret<f64>(0x3fe62e42fefa39ef);

/** The number of heads of queries that share a head of keys and values. */
function groupOf(task: AttentionTask): u32 {
  return <u32>(task.heads / task.keyHeads);
}

/** The tiles of a sequence and a head of keys and values. */
function tilesOf(task: AttentionTask): u32 {
  return (<u32>task.queries * groupOf(task) + ROWS - 1) / ROWS;
}

/** The number of units of the forward pass. */
export function attentionUnits(task: AttentionTask): u32 {
  return <u32>(task.batch * task.keyHeads) * tilesOf(task);
}

/**
 * Writes rows of a tensor to the slot of the tensor's rows, as f32 [rows][padded width]: the tile of queries for operands Q and
 * Grad, the block of keys for K and V. Fills the remaining rows, up to the packed rows or whole steps, and the remaining columns
 * with 0.
 */
export function loadRows(task: AttentionTask, frame: usize, operand: Operand): void {
  const isKey = operand === Operand.K || operand === Operand.V;
  const length = <u32>(operand === Operand.Q || operand === Operand.K ? task.width : task.valueWidth);
  const count = <u32>slot(frame, isKey ? Slot.BlockCount : Slot.TileRows);
  const capacity = isKey ? padded(task, count) : packedRows(frame);
  const to = rowsSlot(frame, operand);
  const pitch = (<usize>padded(task, length)) << 2;
  memory.fill(to, 0, <usize>capacity * pitch);
  const data = dataOf(task, operand);
  const type = task.type;
  for (let row: u32 = 0; row < count; row++) {
    const index = isKey ? indexOfKey(task, frame, operand, row) : indexOfQuery(task, frame, operand, row);
    widen(data, type, index, length, to + <usize>row * pitch);
  }
}

/** The index of the first element of row `row` of the block of keys. */
function indexOfKey(task: AttentionTask, frame: usize, operand: Operand, row: u32): usize {
  const key = slot(frame, Slot.FirstKey) + slot(frame, Slot.BlockKey) + row;
  return keyIndex(task, operand, slot(frame, Slot.Batch), key, slot(frame, Slot.KeyHead));
}

/** The index of the first element of row `row` of the tile of queries. */
function indexOfQuery(task: AttentionTask, frame: usize, operand: Operand, row: u32): usize {
  const query = slot(frame, Slot.FirstQuery) + queryOf(frame, row);
  return indexOf(task, operand, slot(frame, Slot.Batch), query, headOf(frame, row));
}

/** The memory for the rows of a tensor as f32. */
function rowsSlot(frame: usize, operand: Operand): usize {
  if (operand === Operand.Q) return slot(frame, Slot.QueryRows);
  if (operand === Operand.K) return slot(frame, Slot.KeyRows);
  return slot(frame, operand === Operand.V ? Slot.ValueRows : Slot.GradRows);
}

/** Packs the loaded rows of operand Q or Grad as factors in the slot `name`. */
export function packRows(task: AttentionTask, frame: usize, operand: Operand, name: Slot): void {
  const count = packedRows(frame);
  const width = padded(task, <u32>(operand === Operand.Q ? task.width : task.valueWidth));
  const rows = rowsSlot(frame, operand);
  openFactors(task, frame, width);
  for (let row: u32 = 0; row < count; row++)
    packFactors(task, frame, name, rows + ((<usize>(row * width)) << 2), row);
}

/** Computes units [begin, end). `scratch` has attentionScratch(task) bytes and belongs to the calling thread. */
export function attention(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const tiles = tilesOf(task);
  const group = groupOf(task);
  const keyHeads = <u32>task.keyHeads;
  setSlot(scratch, Slot.TileHeads, group);
  for (let unit = begin; unit < end; unit++) {
    const sequence = unit / tiles;
    setSequence(task, scratch, sequence / keyHeads, (sequence % keyHeads) * group);
    const first = (unit % tiles) * ROWS;
    const rows = <u32>slot(scratch, Slot.QueryCount) * group;
    if (first < rows) attendTile(task, scratch, first, min(ROWS, rows - first));
  }
}

function attendTile(task: AttentionTask, frame: usize, first: u32, rows: u32): void {
  const valueWidth = padded(task, <u32>task.valueWidth);
  setSlot(frame, Slot.PackedRows, (rows + 3) & ~3);
  setSlot(frame, Slot.TileFirst, first);
  setSlot(frame, Slot.TileRows, rows);
  loadRows(task, frame, Operand.Q);
  packRows(task, frame, Operand.Q, Slot.Queries);
  for (let row: u32 = 0; row < rows; row++) openRow(rowState(frame, row));
  memory.fill(slot(frame, Slot.Totals), 0, <usize>rows * valueWidth * 4);
  memory.fill(slot(frame, Slot.Sums), 0, sumBytes(task, valueWidth));
  attendBlocks(task, frame);
  for (let row: u32 = 0; row < rows; row++) finishRow(task, frame, row);
}

function rowState(frame: usize, row: u32): usize {
  return slot(frame, Slot.RowStates) + <usize>row * ROW_STATE_BYTES;
}

export function sumBytes(task: AttentionTask, width: u32): usize {
  return <usize>(width / panelLength(task)) * ROWS * STATE_BYTES;
}

/** Adds all blocks of keys that a row of the tile sees, split by split. */
function attendBlocks(task: AttentionTask, frame: usize): void {
  const rows = <u32>slot(frame, Slot.TileRows);
  const block = <i32>task.blockKeys;
  const keys = <i32>slot(frame, Slot.KeyCount);
  const split = <i32>task.splitKeys;
  const begin = firstKey(task, positionOf(task, frame, <i32>queryOf(frame, 0)));
  const end = endKey(task, frame, positionOf(task, frame, <i32>queryOf(frame, rows - 1)));
  let current: i32 = -1;
  for (let key = (begin / block) * block; key < end; key += block) {
    const part: i32 = split ? key / split : 0;
    if (current >= 0 && part !== current) closeSplit(task, frame);
    current = part;
    setSlot(frame, Slot.BlockKey, key);
    setSlot(frame, Slot.BlockCount, min(block, keys - key));
    attendBlock(task, frame);
  }
  if (current >= 0) closeSplit(task, frame);
}

/**
 * Loads the keys of the block, or the values for operand V, and multiplies them by the packed rows of the tile (`multiplyRows`).
 */
export function multiplyKeys(task: AttentionTask, frame: usize, operand: Operand): void {
  loadRows(task, frame, operand);
  multiplyRows(task, frame, operand);
}

function attendBlock(task: AttentionTask, frame: usize): void {
  const rows = <u32>slot(frame, Slot.TileRows);
  const count = <u32>slot(frame, Slot.BlockCount);
  const length = padded(task, count);
  const factor = scoreFactor(task);
  const type = task.type;
  const drops = task.threshold !== 0;
  multiplyKeys(task, frame, Operand.K);
  openFactors(task, frame, length);
  for (let row: u32 = 0; row < packedRows(frame); row++) {
    const visible = visibleRow(frame, row);
    const scores = scoreRow(frame, Slot.Scores, row);
    memory.fill(visible, 0, length);
    const shown = row < rows ? fillVisible(task, frame, row) : 0;
    if (shown) {
      applyScores(task, frame, row, 0);
      const decay = addScores(rowState(frame, row), scores, visible, length, factor);
      scaleSums(task, frame, row, decay);
      if (drops) dropRow(task, frame, row);
      for (let j: usize = 0; j < length; j += 4)
        v128.store(scores + (j << 2), roundFour(type, v128.load(scores + (j << 2))));
    } else {
      memory.fill(scores, 0, (<usize>length) << 2);
    }
    packFactors(task, frame, Slot.Factors, scores, row);
  }
  loadRows(task, frame, Operand.V);
  const block = factorBlock(frame);
  block.values = slot(frame, Slot.ValueRows);
  block.width = padded(task, <u32>task.valueWidth);
  block.depth = length;
  block.rows = rows;
  block.visible = slot(frame, Slot.Visible);
  block.pitch = innerLength(task);
  block.sums = slot(frame, Slot.Sums);
  addBlock(task, frame, block);
}

/** Replaces the probabilities of dropped keys by 0. */
function dropRow(task: AttentionTask, frame: usize, row: u32): void {
  const keptBytes = slot(frame, Slot.Kept);
  const scores = scoreRow(frame, Slot.Scores, row);
  fillKept(task, frame, row);
  for (let j: usize = 0; j < slot(frame, Slot.BlockCount); j++)
    if (load<u8>(keptBytes + j) === 0) store<f32>(scores + (j << 2), 0);
}

/** Multiplies the outputs of a row by `decay`, and replaces -0 by +0. */
function scaleSums(task: AttentionTask, frame: usize, row: u32, decay: f32): void {
  const width = padded(task, <u32>task.valueWidth);
  const panel = panelLength(task);
  const wide = task.kernel !== Kernel.Plain;
  let state = slot(frame, Slot.Sums) + <usize>row * STATE_BYTES;
  const pair = f64x2.splat(decay);
  const four = f32x4.splat(decay);
  for (let first: u32 = 0; first < width; first += panel) {
    for (let c: usize = 0; c < STATE_BYTES; c += 16) {
      const value = v128.load(state + c);
      if (wide) {
        const scaled = f64x2.promote_low_f32x4(f32x4.demote_f64x2_zero(f64x2.mul(value, pair)));
        v128.store(state + c, f64x2.add(scaled, f64x2.splat(0)));
      } else {
        v128.store(state + c, f32x4.add(f32x4.mul(value, four), f32x4.splat(0)));
      }
    }
    state += <usize>ROWS * STATE_BYTES;
  }
}

/** Merges the current split of every row into the totals of the row, and begins the next split. */
function closeSplit(task: AttentionTask, frame: usize): void {
  const rows = <u32>slot(frame, Slot.TileRows);
  const width = padded(task, <u32>task.valueWidth);
  for (let row: u32 = 0; row < rows; row++) {
    const state = rowState(frame, row);
    if (load<u32>(state, RowField.IsSeen) === 0) continue;
    const maximum = load<f32>(state, RowField.Maximum);
    const largest = load<f32>(state, RowField.Largest);
    if (maximum > largest) store<f32>(state, maximum, RowField.Largest);
    const line = slot(frame, Slot.Line);
    readSums(task, frame, row, width, line);
    merge(task, frame, row, load<f32>(state, RowField.Scaled), sumOf(state));
    openSplit(state);
  }
  memory.fill(slot(frame, Slot.Sums), 0, sumBytes(task, width));
}

/** Writes the outputs of a row, f32 [width]. */
function readSums(task: AttentionTask, frame: usize, row: u32, width: u32, line: usize): void {
  const panel = panelLength(task);
  const wide = task.kernel !== Kernel.Plain;
  let state = slot(frame, Slot.Sums) + <usize>row * STATE_BYTES;
  for (let first: u32 = 0; first < width; first += panel) {
    for (let c: u32 = 0; c < panel; c++) {
      const value = wide ? <f32>load<f64>(state + ((<usize>c) << 3)) : load<f32>(state + ((<usize>c) << 2));
      store<f32>(line + ((<usize>(first + c)) << 2), value);
    }
    state += <usize>ROWS * STATE_BYTES;
  }
}

/** Merges a split with scaled maximum r, sum e and the outputs in the slot Line into the totals of a row. */
function merge(task: AttentionTask, frame: usize, row: u32, r: f32, e: f32): void {
  const width = padded(task, <u32>task.valueWidth);
  const o = slot(frame, Slot.Line);
  const state = rowState(frame, row);
  const totalScaled = load<f32>(state, RowField.TotalScaled);
  const larger = r > totalScaled ? r : totalScaled;
  const base = baseOf(larger);
  const f = powerOf(totalScaled, base);
  const g = powerOf(r, base);
  store<f32>(state, larger, RowField.TotalScaled);
  store<f32>(state, load<f32>(state, RowField.Total) * f + e * g, RowField.Total);
  const totals = slot(frame, Slot.Totals) + ((<usize>(row * width)) << 2);
  for (let d: usize = 0; d < (<usize>width) << 2; d += 4) {
    store<f32>(totals + d, load<f32>(totals + d) * f + load<f32>(o + d) * g);
  }
}

/** Writes the results of a row. */
function finishRow(task: AttentionTask, frame: usize, row: u32): void {
  const state = rowState(frame, row);
  const head = headOf(frame, row);
  const width = padded(task, <u32>task.valueWidth);
  const i = <usize>queryOf(frame, row);
  const sinks = task.sinks;
  if (sinks) {
    // a sink has no outputs
    memory.fill(slot(frame, Slot.Line), 0, (<usize>width) << 2);
    merge(task, frame, row, load<f32>(sinks + (head << 2)) * log2e(), 1);
  }
  const total = load<f32>(state, RowField.Total);
  const isEmpty = total === 0;
  const index =
    slot(frame, Slot.Batch) * task.lseBatch + head * task.lseHead + slot(frame, Slot.FirstQuery) + i;
  const lse: f32 = isEmpty ? -Infinity : fma32(load<f32>(state, RowField.TotalScaled), LN2, log(total));
  store<f32>(task.lse + (index << 2), canonical(lse));
  const maxima = task.maxima;
  if (maxima) store<f32>(maxima + (index << 2), load<f32>(state, RowField.Largest) * logitFactor(task) + 0);
  const outputs = slot(frame, Slot.Totals) + ((<usize>(row * width)) << 2);
  const factor: f32 = task.keep / total;
  for (let d: usize = 0; d < (<usize>width) << 2; d += 4) {
    const value = load<f32>(outputs + d) * factor;
    store<f32>(outputs + d, isEmpty ? 0 : canonical(value));
  }
  const to = indexOf(task, Operand.Out, slot(frame, Slot.Batch), slot(frame, Slot.FirstQuery) + i, head);
  narrow(outputs, dataOf(task, Operand.Out), <u32>task.type, to, task.valueWidth);
}

/** Sets f32 elements [begin, end) to `value`. */
export function attentionFill(to: usize, value: f32, begin: usize, end: usize): void {
  for (let i = begin; i < end; i++) store<f32>(to + (i << 2), value);
}

/** Writes the largest maximum of each of the heads [begin, end), NaN ignored. */
export function attentionMaxima(task: AttentionTask, begin: u32, end: u32): void {
  for (let head = begin; head < end; head++) {
    let largest: f32 = -Infinity;
    for (let b: u32 = 0; b < task.statisticBatches; b++) {
      const index = <usize>b * task.lseBatch + <usize>head * task.lseHead;
      largest = maximumOf(task.maxima + (index << 2), task.queries, largest);
    }
    store<f32>(task.maxLogits + ((<usize>head) << 2), largest);
  }
}
