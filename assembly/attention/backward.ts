// The backward pass of an attention (numerics.md §10.6). A unit is a tile of up to ROWS queries for the gradients of queries,
// and a tile of up to ROWS keys for the gradients of keys and values. Both compute the scores again.

import { addTerms, foldLanes } from "../core/reduce";
import { ex2Four } from "../core/special-functions";
import { canonical, narrow, roundFour, widen } from "../core/wide";
import { fmaFour } from "../gemm/datapath";
import { loadRows, multiplyKeys, packRows, sumBytes } from "./forward";
import {
  factorBlock,
  innerLength,
  openFrame,
  padded,
  panelLength,
  ROWS,
  Slot,
  STATE_BYTES,
  setSlot,
  slot,
} from "./frame";
import { addBlock, openFactors, packFactors, storeStates } from "./product";
import { applyScores, fillKept, log2e, scoreFactor } from "./scores";
import {
  endKey,
  fillVisible,
  firstKey,
  positionOf,
  scoreRow,
  setHead,
  setSequence,
  visibleRow,
} from "./sequence";
import { powerOf, visibleFour } from "./softmax";
import { AttentionTask, dataOf, indexOf, Operand } from "./task";

/** The index of query i in the tensors of statistics. */
function statisticOf(task: AttentionTask, frame: usize, i: usize): usize {
  return (
    slot(frame, Slot.Batch) * task.lseBatch +
    slot(frame, Slot.Head) * task.lseHead +
    slot(frame, Slot.FirstQuery) +
    i
  );
}

/** The tiles of queries of a sequence and head. */
function tilesOf(task: AttentionTask): u32 {
  return (<u32>task.queries + ROWS - 1) / ROWS;
}

/** The number of units of the gradients of queries, and of delta. */
export function attentionQueryUnits(task: AttentionTask): u32 {
  return <u32>(task.batch * task.heads) * tilesOf(task);
}

/** Sets the sequence and head of query tile `unit`. Returns the first query of the tile. */
function openQueries(task: AttentionTask, frame: usize, unit: u32): u32 {
  const tiles = tilesOf(task);
  const heads = <u32>task.heads;
  setSequence(task, frame, unit / tiles / heads, (unit / tiles) % heads);
  return (unit % tiles) * ROWS;
}

/** Writes delta, the sum of gradient times output, of the rows of query tiles [begin, end). */
export function attentionDeltas(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const width = <u32>task.valueWidth;
  const type = <u32>task.type;
  const outputs = slot(scratch, Slot.QueryRows);
  const grads = slot(scratch, Slot.GradRows);
  const lanes = slot(scratch, Slot.LineValues);
  for (let unit = begin; unit < end; unit++) {
    const first = openQueries(task, scratch, unit);
    const last = min(first + ROWS, <u32>slot(scratch, Slot.QueryCount));
    for (let i = first; i < last; i++) {
      const row = slot(scratch, Slot.FirstQuery) + i;
      const head = slot(scratch, Slot.Head);
      const b = slot(scratch, Slot.Batch);
      widen(dataOf(task, Operand.Out), type, indexOf(task, Operand.Out, b, row, head), width, outputs);
      widen(dataOf(task, Operand.Grad), type, indexOf(task, Operand.Grad, b, row, head), width, grads);
      for (let d: usize = 0; d < (<usize>width) << 2; d += 4)
        store<f32>(grads + d, load<f32>(grads + d) * load<f32>(outputs + d));
      memory.fill(lanes, 0, 128);
      addTerms(lanes, grads, width);
      const index = statisticOf(task, scratch, i);
      store<f32>(task.deltas + (index << 2), foldLanes(lanes));
    }
  }
}

/** Loads and packs the queries of the tile, and the gradients of their outputs. */
function packQueries(task: AttentionTask, frame: usize): void {
  loadRows(task, frame, Operand.Q);
  loadRows(task, frame, Operand.Grad);
  packRows(task, frame, Operand.Q, Slot.Queries);
  packRows(task, frame, Operand.Grad, Slot.Grads);
}

/**
 * Computes the pairs of the packed queries with the keys of the block. Writes the rounded gradients of the products to the slot
 * `Scores`, the rounded probabilities to `ScoreGrads`, and the visibility of each key to `Visible`. If `storesGrads`, also writes
 * the gradients before rounding.
 */
function differentiate(task: AttentionTask, frame: usize, storesGrads: bool): void {
  const first = <u32>slot(frame, Slot.TileFirst);
  const rows = <u32>slot(frame, Slot.TileRows);
  const length = padded(task, <u32>slot(frame, Slot.BlockCount));
  multiplyKeys(task, frame, Operand.K);
  multiplyKeys(task, frame, Operand.V);
  for (let row: u32 = 0; row < ROWS; row++) {
    memory.fill(visibleRow(frame, row), 0, length);
    let shown: i32 = 0;
    if (row < rows) {
      const lse = load<f32>(task.lse + (statisticOf(task, frame, first + row) << 2));
      if (lse !== -Infinity) shown = fillVisible(task, frame, row);
    }
    if (shown) {
      differentiateRow(task, frame, row, storesGrads);
    } else {
      memory.fill(scoreRow(frame, Slot.Scores, row), 0, (<usize>length) << 2);
      memory.fill(scoreRow(frame, Slot.ScoreGrads, row), 0, (<usize>length) << 2);
    }
  }
}

function differentiateRow(task: AttentionTask, frame: usize, row: u32, storesGrads: bool): void {
  const visible = visibleRow(frame, row);
  const scores = scoreRow(frame, Slot.Scores, row);
  const grads = scoreRow(frame, Slot.ScoreGrads, row);
  const type = task.type;
  const index = statisticOf(task, frame, slot(frame, Slot.TileFirst) + row) << 2;
  const minusLse = f32x4.splat(-(load<f32>(task.lse + index) * log2e()));
  const minusDelta = f32x4.splat(-load<f32>(task.deltas + index));
  const factor = f32x4.splat(scoreFactor(task));
  const keep = f32x4.splat(task.keep);
  const drops = task.threshold !== 0;
  const isBounded = task.softcap !== 0;
  const tanhs = slot(frame, Slot.Line);
  const keptBytes = slot(frame, Slot.Kept);
  applyScores(task, frame, row, isBounded ? tanhs : 0);
  if (drops) fillKept(task, frame, row);
  const length = padded(task, <u32>slot(frame, Slot.BlockCount));
  const isBefore = task.biasBeforeScale;
  const scale = f32x4.splat(task.scale);
  const biasGrads = slot(frame, Slot.LineValues);
  for (let j: usize = 0; j < <usize>length; j += 4) {
    const at = j << 2;
    const shown = visibleFour(visible + j);
    const p = v128.and(ex2Four(fmaFour(v128.load(scores + at), factor, minusLse)), shown);
    const isKept = drops ? visibleFour(keptBytes + j) : i32x4.splat(-1);
    const difference = fmaFour(v128.load(grads + at), keep, minusDelta);
    let y = f32x4.mul(p, v128.bitselect(difference, minusDelta, isKept));
    if (storesGrads && !isBefore) v128.store(biasGrads + at, v128.and(y, shown));
    if (isBounded) {
      const h = v128.load(tanhs + at);
      y = f32x4.mul(y, fmaFour(f32x4.neg(h), h, f32x4.splat(1)));
    }
    y = v128.and(y, shown);
    if (storesGrads && isBefore) v128.store(biasGrads + at, f32x4.mul(y, scale));
    v128.store(scores + at, roundFour(type, y));
    v128.store(grads + at, roundFour(type, v128.and(p, isKept)));
  }
  if (storesGrads) keepGrads(task, frame, row);
}

/** Writes the contributions of a row's pairs, in the slot LineValues, to the gradient of the bias. */
function keepGrads(task: AttentionTask, frame: usize, row: u32): void {
  const head = slot(frame, Slot.Batch) * task.heads + slot(frame, Slot.Head);
  const query = head * task.queries + slot(frame, Slot.TileFirst) + row;
  const to = task.biasGrads + ((query * task.keys + slot(frame, Slot.BlockKey)) << 2);
  memory.copy(to, slot(frame, Slot.LineValues), slot(frame, Slot.BlockCount) << 2);
}

/** Computes the gradients of the queries of tiles [begin, end). */
export function attentionQueryGrads(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const block = <i32>task.blockKeys;
  for (let unit = begin; unit < end; unit++) {
    const first = openQueries(task, scratch, unit);
    const queries = <u32>slot(scratch, Slot.QueryCount);
    if (first >= queries) continue;
    const rows = min(ROWS, queries - first);
    setSlot(scratch, Slot.TileFirst, first);
    setSlot(scratch, Slot.TileRows, rows);
    const width = padded(task, <u32>task.width);
    packQueries(task, scratch);
    memory.fill(slot(scratch, Slot.Totals), 0, (<usize>(ROWS * width)) << 2);
    const keys = <i32>slot(scratch, Slot.KeyCount);
    const begins = firstKey(task, positionOf(task, scratch, first));
    const ends = endKey(task, scratch, positionOf(task, scratch, first + rows - 1));
    for (let key = (begins / block) * block; key < ends; key += block) {
      setSlot(scratch, Slot.BlockKey, key);
      setSlot(scratch, Slot.BlockCount, min(block, keys - key));
      addQueryGrads(task, scratch);
    }
    writeRows(task, scratch, Operand.Dq);
  }
}

/** Adds the sum over one block of keys to the totals of the queries. */
function addQueryGrads(task: AttentionTask, frame: usize): void {
  const rows = <u32>slot(frame, Slot.TileRows);
  const length = padded(task, <u32>slot(frame, Slot.BlockCount));
  const width = padded(task, <u32>task.width);
  differentiate(task, frame, task.biasGrads !== 0);
  openFactors(task, frame, length);
  for (let row: u32 = 0; row < ROWS; row++)
    packFactors(task, frame, Slot.Factors, scoreRow(frame, Slot.Scores, row), row);
  const sums = slot(frame, Slot.Sums);
  memory.fill(sums, 0, sumBytes(task, width));
  const block = factorBlock(frame);
  block.values = slot(frame, Slot.KeyRows);
  block.width = width;
  block.depth = length;
  block.rows = rows;
  block.visible = slot(frame, Slot.Visible);
  block.pitch = innerLength(task);
  block.sums = sums;
  addBlock(task, frame, block);
  const part = slot(frame, Slot.ValueRows);
  const totals = slot(frame, Slot.Totals);
  const panel = panelLength(task);
  for (let c: u32 = 0; c < width; c += panel) {
    const states = sums + <usize>(c / panel) * ROWS * STATE_BYTES;
    storeStates(task, states, rows, part + ((<usize>c) << 2), width);
  }
  for (let at: usize = 0; at < (<usize>(rows * width)) << 2; at += 16)
    v128.store(totals + at, f32x4.add(v128.load(totals + at), v128.load(part + at)));
}

/**
 * Writes the totals [ROWS][padded width] to the rows of a result, multiplied by the scale or, for operand Dv, by the factor of
 * kept keys. The rows are the tile of queries for operand Dq, otherwise the tile of keys.
 */
function writeRows(task: AttentionTask, frame: usize, operand: Operand): void {
  const isKey = operand !== Operand.Dq;
  const first = isKey
    ? slot(frame, Slot.FirstKey) + slot(frame, Slot.BlockKey)
    : slot(frame, Slot.FirstQuery) + slot(frame, Slot.TileFirst);
  const rows = <u32>slot(frame, isKey ? Slot.BlockCount : Slot.TileRows);
  const head = slot(frame, isKey ? Slot.KeyHead : Slot.Head);
  const length = operand === Operand.Dv ? task.valueWidth : task.width;
  const width = padded(task, <u32>length);
  const factor = operand === Operand.Dv ? task.keep : task.scale;
  for (let row: u32 = 0; row < rows; row++) {
    const line = slot(frame, Slot.Totals) + ((<usize>(row * width)) << 2);
    for (let at: usize = 0; at < length << 2; at += 4)
      store<f32>(line + at, canonical(load<f32>(line + at) * factor));
    const to = indexOf(task, operand, slot(frame, Slot.Batch), first + row, head);
    narrow(line, dataOf(task, operand), task.type, to, length);
  }
}

function keyTilesOf(task: AttentionTask): u32 {
  return (<u32>task.keys + ROWS - 1) / ROWS;
}

/** The number of units of the gradients of keys and values. */
export function attentionKeyUnits(task: AttentionTask): u32 {
  return <u32>(task.batch * task.keyHeads) * keyTilesOf(task);
}

/** Computes the gradients of the keys and values of tiles [begin, end). */
export function attentionKeyGrads(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const tiles = keyTilesOf(task);
  const keyHeads = <u32>task.keyHeads;
  const group = <u32>task.heads / keyHeads;
  const width = padded(task, <u32>task.width);
  const valueWidth = padded(task, <u32>task.valueWidth);
  for (let unit = begin; unit < end; unit++) {
    const keyHead = (unit / tiles) % keyHeads;
    setSequence(task, scratch, unit / tiles / keyHeads, keyHead * group);
    const key = (unit % tiles) * ROWS;
    const keys = <u32>slot(scratch, Slot.KeyCount);
    if (key >= keys) continue;
    setSlot(scratch, Slot.BlockKey, key);
    setSlot(scratch, Slot.BlockCount, min(ROWS, keys - key));
    memory.fill(slot(scratch, Slot.Sums), 0, sumBytes(task, width));
    memory.fill(slot(scratch, Slot.ValueSums), 0, sumBytes(task, valueWidth));
    for (let head = keyHead * group; head < (keyHead + 1) * group; head++) {
      setHead(task, scratch, head);
      const queries = <u32>slot(scratch, Slot.QueryCount);
      for (let first: u32 = 0; first < queries; first += ROWS) {
        setSlot(scratch, Slot.TileFirst, first);
        setSlot(scratch, Slot.TileRows, min(ROWS, queries - first));
        addKeyGrads(task, scratch);
      }
    }
    finishKeys(task, scratch, Operand.Dk);
    finishKeys(task, scratch, Operand.Dv);
  }
}

/** Adds the contributions of the tile of queries to the gradients of the keys and values of the tile of keys. */
function addKeyGrads(task: AttentionTask, frame: usize): void {
  const first = <i32>slot(frame, Slot.TileFirst);
  const rows = <u32>slot(frame, Slot.TileRows);
  const key = <i32>slot(frame, Slot.BlockKey);
  const count = <u32>slot(frame, Slot.BlockCount);
  const t = positionOf(task, frame, first + <i32>rows - 1);
  if (endKey(task, frame, t) <= key) return;
  if (firstKey(task, positionOf(task, frame, first)) >= key + <i32>count) return;
  packQueries(task, frame);
  differentiate(task, frame, false);
  const depth = padded(task, rows);
  const visible = slot(frame, Slot.Kept);
  transposeVisible(task, frame, count, visible);
  const block = factorBlock(frame);
  block.depth = depth;
  block.rows = count;
  block.visible = visible;
  block.pitch = ROWS;
  packTransposed(task, frame, slot(frame, Slot.Scores), depth, count);
  block.values = slot(frame, Slot.QueryRows);
  block.width = padded(task, <u32>task.width);
  block.sums = slot(frame, Slot.Sums);
  addBlock(task, frame, block);
  packTransposed(task, frame, slot(frame, Slot.ScoreGrads), depth, count);
  block.values = slot(frame, Slot.GradRows);
  block.width = padded(task, <u32>task.valueWidth);
  block.sums = slot(frame, Slot.ValueSums);
  addBlock(task, frame, block);
}

/** Transposes the visible pairs [ROWS][inner] to [keys][ROWS]. */
function transposeVisible(task: AttentionTask, frame: usize, count: u32, to: usize): void {
  const inner = innerLength(task);
  const from = slot(frame, Slot.Visible);
  for (let key: u32 = 0; key < count; key++)
    for (let row: u32 = 0; row < ROWS; row++)
      store<u8>(to + <usize>(key * ROWS + row), load<u8>(from + <usize>(row * inner + key)));
}

/** Packs the columns of f32 [ROWS][inner] as rows of `depth` factors; the rows from `count` on are 0. */
function packTransposed(task: AttentionTask, frame: usize, scores: usize, depth: u32, count: u32): void {
  const inner = innerLength(task);
  const line = slot(frame, Slot.Line);
  openFactors(task, frame, depth);
  for (let key: u32 = 0; key < ROWS; key++) {
    for (let row: u32 = 0; row < depth; row++) {
      const value: f32 = key < count ? load<f32>(scores + ((<usize>(row * inner + key)) << 2)) : 0;
      store<f32>(line + ((<usize>row) << 2), value);
    }
    packFactors(task, frame, Slot.Factors, line, key);
  }
}

/** Writes the gradients of keys, or of values for operand Dv, of a tile. */
function finishKeys(task: AttentionTask, frame: usize, operand: Operand): void {
  const isKey = operand === Operand.Dk;
  const width = padded(task, <u32>(isKey ? task.width : task.valueWidth));
  const count = <u32>slot(frame, Slot.BlockCount);
  const panel = panelLength(task);
  const totals = slot(frame, Slot.Totals);
  let states = slot(frame, isKey ? Slot.Sums : Slot.ValueSums);
  for (let c: u32 = 0; c < width; c += panel) {
    storeStates(task, states, count, totals + ((<usize>c) << 2), width);
    states += <usize>ROWS * STATE_BYTES;
  }
  writeRows(task, frame, operand);
}

/** Writes the gradients of the sinks of heads [begin, end), f32: minus the sum of 2^(sink - lse) * delta over all rows. */
export function attentionSinkGrads(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  for (let head = begin; head < end; head++) {
    const sink = load<f32>(task.sinks + ((<usize>head) << 2)) * log2e();
    memory.fill(scratch, 0, 128);
    let termIndex: usize = 0;
    for (let b: u32 = 0; b < task.statisticBatches; b++) {
      const index = <usize>b * task.lseBatch + <usize>head * task.lseHead;
      for (let i: usize = 0; i < task.queries; i++) {
        const lse = load<f32>(task.lse + ((index + i) << 2));
        let term: f32 = 0;
        if (lse !== -Infinity)
          term = powerOf(sink, lse * log2e()) * load<f32>(task.deltas + ((index + i) << 2));
        const lane = scratch + ((termIndex & 31) << 2);
        store<f32>(lane, load<f32>(lane) + term);
        termIndex++;
      }
    }
    store<f32>(task.dsinks + ((<usize>head) << 2), -foldLanes(scratch));
  }
}

/**
 * Sums the gradients of scores over the batches and heads that share a bias. Computes rows [begin, end) of the gradient of the
 * bias.
 */
export function attentionBiasGrads(task: AttentionTask, scratch: usize, begin: u32, end: u32): void {
  const biasBatch = task.dbiasBatches;
  const biasHeads = task.dbiasHeads;
  const queries = <u32>task.queries;
  const keys = <u32>task.keys;
  const batch = <u32>task.batch;
  const heads = <u32>task.heads;
  const chunk: u32 = 512;
  for (let row = begin; row < end; row++) {
    const i = row % queries;
    const head = (row / queries) % biasHeads;
    const item = row / queries / biasHeads;
    for (let first: u32 = 0; first < keys; first += chunk) {
      const count = min(chunk, keys - first);
      memory.fill(scratch, 0, (<usize>count) << 2);
      for (let b: u32 = biasBatch > 1 ? item : 0; b < (biasBatch > 1 ? item + 1 : batch); b++)
        for (let h: u32 = biasHeads > 1 ? head : 0; h < (biasHeads > 1 ? head + 1 : heads); h++) {
          const from = <usize>((b * heads + h) * queries + i) * keys + first;
          const terms = task.biasGrads + (from << 2);
          for (let at: usize = 0; at < (<usize>count) << 2; at += 4)
            store<f32>(scratch + at, load<f32>(scratch + at) + load<f32>(terms + at));
        }
      narrow(scratch, task.dbias, task.dbiasType, <usize>row * keys + first, count);
    }
  }
}
