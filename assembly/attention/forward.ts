// The forward pass of an attention (numerics.md §10). A unit is a tile of up to ROWS queries of one sequence and head. No result
// depends on the division into units.

import { Kernel } from "../contract";
import { log } from "../core/math";
import { maximumOf } from "../core/reduce";
import { canonical, narrow, roundFour, widen } from "../core/wide";
import { fma32 } from "../gemm/datapath";
import { kernelOf } from "../gemm/task";
import {
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
import { addBlock, multiplyRows, packFactors } from "./product";
import { applyScores, fillKept, log2e, logitFactor, scoreFactor } from "./scores";
import { endKey, fillVisible, firstKey, positionOf, setSequence } from "./sequence";
import { addScores, baseOf, openRow, openSplit, powerOf, RowField, sumOf } from "./softmax";
import { dataOf, Field, floatOf, indexOf, keyIndex, Operand, valueOf } from "./task";

const LN2: f32 = <f32>reinterpret<f64>(0x3fe62e42fefa39ef);

export function tilesOf(task: usize): u32 {
  return (<u32>valueOf(task, Field.Queries) + ROWS - 1) / ROWS;
}

/** The number of units of the forward pass. */
export function attentionUnits(task: usize): u32 {
  return <u32>(valueOf(task, Field.Batch) * valueOf(task, Field.Heads)) * tilesOf(task);
}

/** Writes rows [first, first + count) of one head of a tensor as f32 [capacity][width]. The other rows and columns become 0. */
export function loadRows(
  task: usize,
  frame: usize,
  operand: Operand,
  head: usize,
  first: usize,
  count: u32,
  capacity: u32,
  length: u32,
  width: u32,
  to: usize,
): void {
  const type = <u32>valueOf(task, Field.Type);
  const isKey = operand === Operand.K || operand === Operand.V;
  const start = slot(frame, isKey ? Slot.FirstKey : Slot.FirstQuery);
  const pitch = (<usize>width) << 2;
  memory.fill(to, 0, <usize>capacity * pitch);
  for (let row: u32 = 0; row < count; row++) {
    const index = isKey
      ? keyIndex(task, operand, slot(frame, Slot.Batch), start + first + row, head)
      : indexOf(task, operand, slot(frame, Slot.Batch), start + first + row, head);
    widen(dataOf(task, operand), type, index, length, to + <usize>row * pitch);
  }
}

/** Packs the rows of a tile, f32 [rows][width]. */
export function packRows(
  task: usize,
  frame: usize,
  rows: usize,
  width: u32,
  values: usize,
  exponents: usize,
): void {
  const count = packedRows(frame);
  for (let row: u32 = 0; row < count; row++)
    packFactors(task, frame, rows + ((<usize>(row * width)) << 2), width, row, count, values, exponents);
}

/** Computes units [begin, end). `scratch` has attentionScratch(task) bytes and belongs to the calling thread. */
export function attention(task: usize, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const tiles = tilesOf(task);
  for (let unit = begin; unit < end; unit++) {
    const sequence = unit / tiles;
    const heads = <u32>valueOf(task, Field.Heads);
    setSequence(task, scratch, sequence / heads, sequence % heads);
    const first = (unit % tiles) * ROWS;
    const queries = <u32>slot(scratch, Slot.QueryCount);
    if (first < queries) attendTile(task, scratch, first, min(ROWS, queries - first));
  }
}

function attendTile(task: usize, frame: usize, first: u32, rows: u32): void {
  const width = padded(task, <u32>valueOf(task, Field.Width));
  const valueWidth = padded(task, <u32>valueOf(task, Field.ValueWidth));
  const depth = <u32>valueOf(task, Field.Width);
  const queries = slot(frame, Slot.QueryRows);
  const count = (rows + 3) & ~3;
  setSlot(frame, Slot.PackedRows, count);
  loadRows(task, frame, Operand.Q, slot(frame, Slot.Head), first, rows, count, depth, width, queries);
  packRows(task, frame, queries, width, slot(frame, Slot.Queries), slot(frame, Slot.QueryExponents));
  for (let row: u32 = 0; row < rows; row++) openRow(rowState(frame, row));
  memory.fill(slot(frame, Slot.Totals), 0, <usize>rows * valueWidth * 4);
  memory.fill(slot(frame, Slot.Sums), 0, sumBytes(task, valueWidth));
  attendBlocks(task, frame, first, rows, valueWidth);
  for (let row: u32 = 0; row < rows; row++) finishRow(task, frame, first + row, row, valueWidth);
}

function rowState(frame: usize, row: u32): usize {
  return slot(frame, Slot.RowStates) + <usize>row * ROW_STATE_BYTES;
}

export function sumBytes(task: usize, width: u32): usize {
  return <usize>(width / panelLength(task)) * ROWS * STATE_BYTES;
}

/** Adds all blocks of keys that a query of the tile sees, split by split. */
function attendBlocks(task: usize, frame: usize, first: u32, rows: u32, valueWidth: u32): void {
  const block = <i32>valueOf(task, Field.BlockKeys);
  const keys = <i32>slot(frame, Slot.KeyCount);
  const split = <i32>valueOf(task, Field.SplitKeys);
  const begin = firstKey(task, positionOf(task, frame, first));
  const end = endKey(task, frame, positionOf(task, frame, first + rows - 1));
  let current: i32 = -1;
  for (let key = (begin / block) * block; key < end; key += block) {
    const part: i32 = split ? key / split : 0;
    if (current >= 0 && part !== current) closeSplit(task, frame, rows, valueWidth);
    current = part;
    attendBlock(task, frame, first, rows, key, min(block, keys - key), valueWidth);
  }
  if (current >= 0) closeSplit(task, frame, rows, valueWidth);
}

/**
 * Computes the products of keys [key, key + count) with the packed queries to the slot `Scores`. For operand V, computes the
 * products of their values with the packed gradients to the slot `ScoreGrads`. The result is f32 [ROWS][inner].
 */
export function multiplyKeys(task: usize, frame: usize, operand: Operand, key: u32, count: u32): void {
  const isKey = operand === Operand.K;
  const length = padded(task, count);
  const depth = <u32>valueOf(task, isKey ? Field.Width : Field.ValueWidth);
  const width = padded(task, depth);
  const rows = slot(frame, isKey ? Slot.KeyRows : Slot.ValueRows);
  loadRows(task, frame, operand, slot(frame, Slot.KeyHead), key, count, length, depth, width, rows);
  multiplyRows(
    task,
    frame,
    slot(frame, isKey ? Slot.Queries : Slot.Grads),
    slot(frame, isKey ? Slot.QueryExponents : Slot.GradExponents),
    rows,
    width,
    length,
    slot(frame, isKey ? Slot.Scores : Slot.ScoreGrads),
    innerLength(task),
  );
}

function attendBlock(
  task: usize,
  frame: usize,
  first: u32,
  rows: u32,
  key: u32,
  count: u32,
  valueWidth: u32,
): void {
  const inner = innerLength(task);
  const length = padded(task, count);
  const factor = scoreFactor(task);
  const type = <u32>valueOf(task, Field.Type);
  const drops = valueOf(task, Field.Threshold) !== 0;
  multiplyKeys(task, frame, Operand.K, key, count);
  for (let row: u32 = 0; row < packedRows(frame); row++) {
    const visible = slot(frame, Slot.Visible) + <usize>(row * inner);
    const scores = slot(frame, Slot.Scores) + ((<usize>(row * inner)) << 2);
    memory.fill(visible, 0, length);
    const shown = row < rows ? fillVisible(task, frame, first + row, key, count, visible) : 0;
    if (shown) {
      applyScores(task, frame, first + row, key, count, visible, scores, 0);
      const decay = addScores(rowState(frame, row), scores, visible, length, factor);
      scaleSums(task, frame, row, valueWidth, decay);
      if (drops) dropRow(task, frame, first + row, key, count, scores);
      for (let j: usize = 0; j < length; j += 4)
        v128.store(scores + (j << 2), roundFour(type, v128.load(scores + (j << 2))));
    } else {
      memory.fill(scores, 0, (<usize>length) << 2);
    }
    packFactors(
      task,
      frame,
      scores,
      length,
      row,
      packedRows(frame),
      slot(frame, Slot.Factors),
      slot(frame, Slot.FactorExponents),
    );
  }
  const block = slot(frame, Slot.ValueRows);
  const depth = <u32>valueOf(task, Field.ValueWidth);
  loadRows(task, frame, Operand.V, slot(frame, Slot.KeyHead), key, count, length, depth, valueWidth, block);
  addBlock(
    task,
    frame,
    block,
    valueWidth,
    length,
    rows,
    slot(frame, Slot.Visible),
    inner,
    slot(frame, Slot.Sums),
  );
}

/** Replaces the probabilities of dropped keys by 0. */
function dropRow(task: usize, frame: usize, i: i32, key: i32, count: i32, scores: usize): void {
  const keptBytes = slot(frame, Slot.Kept);
  fillKept(task, frame, i, key, count);
  for (let j: usize = 0; j < <usize>count; j++)
    if (load<u8>(keptBytes + j) === 0) store<f32>(scores + (j << 2), 0);
}

/** Multiplies the outputs of a row by `decay`, and replaces -0 by +0. */
function scaleSums(task: usize, frame: usize, row: u32, width: u32, decay: f32): void {
  const panel = panelLength(task);
  const wide = kernelOf(task) !== Kernel.Plain;
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

/** Merges the current split of every row into the row's totals, and begins the next split. */
function closeSplit(task: usize, frame: usize, rows: u32, width: u32): void {
  for (let row: u32 = 0; row < rows; row++) {
    const state = rowState(frame, row);
    if (load<u32>(state, RowField.IsSeen) === 0) continue;
    const maximum = load<f32>(state, RowField.Maximum);
    const largest = load<f32>(state, RowField.Largest);
    if (maximum > largest) store<f32>(state, maximum, RowField.Largest);
    const line = slot(frame, Slot.Line);
    readSums(task, frame, row, width, line);
    merge(frame, row, width, load<f32>(state, RowField.Scaled), sumOf(state), line);
    openSplit(state);
  }
  memory.fill(slot(frame, Slot.Sums), 0, sumBytes(task, width));
}

/** Writes the outputs of a row, f32 [width]. */
function readSums(task: usize, frame: usize, row: u32, width: u32, line: usize): void {
  const panel = panelLength(task);
  const wide = kernelOf(task) !== Kernel.Plain;
  let state = slot(frame, Slot.Sums) + <usize>row * STATE_BYTES;
  for (let first: u32 = 0; first < width; first += panel) {
    for (let c: u32 = 0; c < panel; c++) {
      const value = wide ? <f32>load<f64>(state + ((<usize>c) << 3)) : load<f32>(state + ((<usize>c) << 2));
      store<f32>(line + ((<usize>(first + c)) << 2), value);
    }
    state += <usize>ROWS * STATE_BYTES;
  }
}

/** Merges a split with scaled maximum r, sum e and outputs o into the totals of a row. A null `o` means outputs of 0. */
function merge(frame: usize, row: u32, width: u32, r: f32, e: f32, o: usize): void {
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
    const term: f32 = o ? load<f32>(o + d) : 0;
    store<f32>(totals + d, load<f32>(totals + d) * f + term * g);
  }
}

/** Writes the results of a row. */
function finishRow(task: usize, frame: usize, i: u32, row: u32, width: u32): void {
  const state = rowState(frame, row);
  const head = slot(frame, Slot.Head);
  const sinks = valueOf(task, Field.Sinks);
  if (sinks) merge(frame, row, width, load<f32>(sinks + (head << 2)) * log2e(), 1, 0);
  const total = load<f32>(state, RowField.Total);
  const isEmpty = total === 0;
  const index =
    slot(frame, Slot.Batch) * valueOf(task, Field.LseBatch) +
    head * valueOf(task, Field.LseHead) +
    slot(frame, Slot.FirstQuery) +
    i;
  const lse: f32 = isEmpty ? -Infinity : fma32(load<f32>(state, RowField.TotalScaled), LN2, log(total));
  store<f32>(valueOf(task, Field.Lse) + (index << 2), canonical(lse));
  const maxima = valueOf(task, Field.Maxima);
  if (maxima) store<f32>(maxima + (index << 2), load<f32>(state, RowField.Largest) * logitFactor(task) + 0);
  const outputs = slot(frame, Slot.Totals) + ((<usize>(row * width)) << 2);
  const factor: f32 = floatOf(task, Field.Keep) / total;
  for (let d: usize = 0; d < (<usize>width) << 2; d += 4) {
    const value = load<f32>(outputs + d) * factor;
    store<f32>(outputs + d, isEmpty ? 0 : canonical(value));
  }
  const to = indexOf(task, Operand.Out, slot(frame, Slot.Batch), slot(frame, Slot.FirstQuery) + i, head);
  narrow(
    outputs,
    dataOf(task, Operand.Out),
    <u32>valueOf(task, Field.Type),
    to,
    valueOf(task, Field.ValueWidth),
  );
}

/** Sets f32 elements [begin, end) to `value`. */
export function attentionFill(to: usize, value: f32, begin: usize, end: usize): void {
  for (let i = begin; i < end; i++) store<f32>(to + (i << 2), value);
}

/**
 * Writes the largest maximum of each of the heads [begin, end), NaN ignored. The maxima are `rows` rows in each of `batches`
 * items of the tensor of statistics.
 */
export function attentionMaxima(task: usize, to: usize, batches: u32, rows: u32, begin: u32, end: u32): void {
  for (let head = begin; head < end; head++) {
    let largest: f32 = -Infinity;
    for (let b: u32 = 0; b < batches; b++) {
      const index = <usize>b * valueOf(task, Field.LseBatch) + <usize>head * valueOf(task, Field.LseHead);
      const maxima = valueOf(task, Field.Maxima) + (index << 2);
      largest = maximumOf(maxima, rows, largest);
    }
    store<f32>(to + ((<usize>head) << 2), largest);
  }
}
