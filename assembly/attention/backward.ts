// The backward pass of an attention (numerics.md §10.6). A unit is a tile of up to ROWS queries for the gradients of queries,
// and a tile of up to ROWS keys for the gradients of keys and values. Both compute the scores again.

import { addTerms, foldLanes } from "../core/reduce";
import { ex2Four } from "../core/special-functions";
import { canonical, narrow, roundFour, widen } from "../core/wide";
import { fmaFour } from "../gemm/datapath";
import { loadRows, multiplyKeys, packRows, sumBytes, tilesOf } from "./forward";
import { innerLength, openFrame, padded, panelLength, ROWS, Slot, STATE_BYTES, slot } from "./frame";
import { addBlock, packFactors, storeStates } from "./product";
import { applyScores, fillKept, log2e, scoreFactor } from "./scores";
import { endKey, fillVisible, firstKey, positionOf, setHead, setSequence } from "./sequence";
import { powerOf, visibleFour } from "./softmax";
import { dataOf, Field, floatOf, indexOf, Operand, valueOf } from "./task";

/** The row index of query i in the tensors of statistics. */
function statisticOf(task: usize, frame: usize, i: usize): usize {
  return (
    slot(frame, Slot.Batch) * valueOf(task, Field.LseBatch) +
    slot(frame, Slot.Head) * valueOf(task, Field.LseHead) +
    slot(frame, Slot.FirstQuery) +
    i
  );
}

/** Sets the sequence and head of query tile `unit`. Returns the first query of the tile. */
function openQueries(task: usize, frame: usize, unit: u32): u32 {
  const tiles = tilesOf(task);
  const heads = <u32>valueOf(task, Field.Heads);
  setSequence(task, frame, unit / tiles / heads, (unit / tiles) % heads);
  return (unit % tiles) * ROWS;
}

/** Writes delta, the sum of gradient times output, of the rows of query tiles [begin, end). */
export function attentionDeltas(task: usize, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const width = <u32>valueOf(task, Field.ValueWidth);
  const type = <u32>valueOf(task, Field.Type);
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
      store<f32>(valueOf(task, Field.Deltas) + (index << 2), foldLanes(lanes));
    }
  }
}

/** Loads and packs the queries [first, first + rows) of the head, and the gradients of their outputs. */
function packQueries(task: usize, frame: usize, first: u32, rows: u32): void {
  const head = slot(frame, Slot.Head);
  const width = padded(task, <u32>valueOf(task, Field.Width));
  const valueWidth = padded(task, <u32>valueOf(task, Field.ValueWidth));
  const queries = slot(frame, Slot.QueryRows);
  const grads = slot(frame, Slot.GradRows);
  const depth = <u32>valueOf(task, Field.Width);
  const valueDepth = <u32>valueOf(task, Field.ValueWidth);
  loadRows(task, frame, Operand.Q, head, first, rows, ROWS, depth, width, queries);
  loadRows(task, frame, Operand.Grad, head, first, rows, ROWS, valueDepth, valueWidth, grads);
  packRows(task, frame, queries, width, slot(frame, Slot.Queries), slot(frame, Slot.QueryExponents));
  packRows(task, frame, grads, valueWidth, slot(frame, Slot.Grads), slot(frame, Slot.GradExponents));
}

/**
 * Computes the pairs of the packed queries with keys [key, key + count). Writes the rounded gradients of the products to the
 * slot `Scores`, the rounded probabilities to `ScoreGrads`, and which keys are visible to `Visible`. If `storesGrads`, also
 * writes the gradients before rounding.
 */
function differentiate(
  task: usize,
  frame: usize,
  first: u32,
  rows: u32,
  key: u32,
  count: u32,
  storesGrads: bool,
): void {
  const inner = innerLength(task);
  const length = padded(task, count);
  multiplyKeys(task, frame, Operand.K, key, count);
  multiplyKeys(task, frame, Operand.V, key, count);
  for (let row: u32 = 0; row < ROWS; row++) {
    const visible = slot(frame, Slot.Visible) + <usize>(row * inner);
    const scores = slot(frame, Slot.Scores) + ((<usize>(row * inner)) << 2);
    const grads = slot(frame, Slot.ScoreGrads) + ((<usize>(row * inner)) << 2);
    memory.fill(visible, 0, length);
    let shown: i32 = 0;
    if (row < rows) {
      const lse = load<f32>(valueOf(task, Field.Lse) + (statisticOf(task, frame, first + row) << 2));
      if (lse !== -Infinity) shown = fillVisible(task, frame, first + row, key, count, visible);
    }
    if (shown) {
      differentiateRow(task, frame, first + row, key, count, visible, scores, grads, storesGrads);
    } else {
      memory.fill(scores, 0, (<usize>length) << 2);
      memory.fill(grads, 0, (<usize>length) << 2);
    }
  }
}

function differentiateRow(
  task: usize,
  frame: usize,
  i: u32,
  key: u32,
  count: u32,
  visible: usize,
  scores: usize,
  grads: usize,
  storesGrads: bool,
): void {
  const type = <u32>valueOf(task, Field.Type);
  const index = statisticOf(task, frame, i) << 2;
  const minusLse = f32x4.splat(-(load<f32>(valueOf(task, Field.Lse) + index) * log2e()));
  const minusDelta = f32x4.splat(-load<f32>(valueOf(task, Field.Deltas) + index));
  const factor = f32x4.splat(scoreFactor(task));
  const keep = f32x4.splat(floatOf(task, Field.Keep));
  const drops = valueOf(task, Field.Threshold) !== 0;
  const isBounded = floatOf(task, Field.Softcap) !== 0;
  const tanhs = slot(frame, Slot.Line);
  const keptBytes = slot(frame, Slot.Kept);
  applyScores(task, frame, i, key, count, visible, scores, isBounded ? tanhs : 0);
  if (drops) fillKept(task, frame, i, key, count);
  const length = padded(task, count);
  const isBefore = valueOf(task, Field.BiasBeforeScale) !== 0;
  const scale = f32x4.splat(floatOf(task, Field.Scale));
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
  if (storesGrads) keepGrads(task, frame, i, key, count, biasGrads);
}

/** Writes the contributions of a row's pairs to the gradient of the bias. */
function keepGrads(task: usize, frame: usize, i: u32, key: u32, count: u32, grads: usize): void {
  const head = slot(frame, Slot.Batch) * valueOf(task, Field.Heads) + slot(frame, Slot.Head);
  const row = head * valueOf(task, Field.Queries) + i;
  const to = valueOf(task, Field.BiasGrads) + ((row * valueOf(task, Field.Keys) + key) << 2);
  memory.copy(to, grads, (<usize>count) << 2);
}

/** Computes the gradients of the queries of tiles [begin, end). */
export function attentionQueryGrads(task: usize, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const block = <i32>valueOf(task, Field.BlockKeys);
  for (let unit = begin; unit < end; unit++) {
    const first = openQueries(task, scratch, unit);
    const queries = <u32>slot(scratch, Slot.QueryCount);
    if (first >= queries) continue;
    const rows = min(ROWS, queries - first);
    const width = padded(task, <u32>valueOf(task, Field.Width));
    packQueries(task, scratch, first, rows);
    memory.fill(slot(scratch, Slot.Totals), 0, (<usize>(ROWS * width)) << 2);
    const keys = <i32>slot(scratch, Slot.KeyCount);
    const begins = firstKey(task, positionOf(task, scratch, first));
    const ends = endKey(task, scratch, positionOf(task, scratch, first + rows - 1));
    for (let key = (begins / block) * block; key < ends; key += block)
      addQueryGrads(task, scratch, first, rows, key, min(block, keys - key));
    writeRows(
      task,
      scratch,
      Operand.Dq,
      slot(scratch, Slot.Head),
      first,
      rows,
      width,
      floatOf(task, Field.Scale),
    );
  }
}

/** Adds the sum over one block of keys to the totals of the queries. */
function addQueryGrads(task: usize, frame: usize, first: u32, rows: u32, key: u32, count: u32): void {
  const inner = innerLength(task);
  const length = padded(task, count);
  const width = padded(task, <u32>valueOf(task, Field.Width));
  differentiate(task, frame, first, rows, key, count, valueOf(task, Field.BiasGrads) !== 0);
  for (let row: u32 = 0; row < ROWS; row++) {
    const line = slot(frame, Slot.Scores) + ((<usize>(row * inner)) << 2);
    packFactors(
      task,
      frame,
      line,
      length,
      row,
      ROWS,
      slot(frame, Slot.Factors),
      slot(frame, Slot.FactorExponents),
    );
  }
  const sums = slot(frame, Slot.Sums);
  memory.fill(sums, 0, sumBytes(task, width));
  addBlock(
    task,
    frame,
    slot(frame, Slot.KeyRows),
    width,
    length,
    rows,
    slot(frame, Slot.Visible),
    inner,
    sums,
  );
  const part = slot(frame, Slot.ValueRows);
  const totals = slot(frame, Slot.Totals);
  const panel = panelLength(task);
  for (let c: u32 = 0; c < width; c += panel)
    storeStates(task, sums + <usize>(c / panel) * ROWS * STATE_BYTES, rows, part, width, c);
  for (let at: usize = 0; at < (<usize>(rows * width)) << 2; at += 16)
    v128.store(totals + at, f32x4.add(v128.load(totals + at), v128.load(part + at)));
}

/** Writes the totals [ROWS][width], multiplied by `factor`, to rows [first, first + rows) of a result. */
function writeRows(
  task: usize,
  frame: usize,
  operand: Operand,
  head: usize,
  first: usize,
  rows: u32,
  width: u32,
  factor: f32,
): void {
  const isKey = operand === Operand.Dk || operand === Operand.Dv;
  const start = slot(frame, isKey ? Slot.FirstKey : Slot.FirstQuery);
  const length = valueOf(task, operand === Operand.Dv ? Field.ValueWidth : Field.Width);
  for (let row: u32 = 0; row < rows; row++) {
    const line = slot(frame, Slot.Totals) + ((<usize>(row * width)) << 2);
    for (let at: usize = 0; at < length << 2; at += 4)
      store<f32>(line + at, canonical(load<f32>(line + at) * factor));
    const to = indexOf(task, operand, slot(frame, Slot.Batch), start + first + row, head);
    narrow(line, dataOf(task, operand), <u32>valueOf(task, Field.Type), to, length);
  }
}

function keyTilesOf(task: usize): u32 {
  return (<u32>valueOf(task, Field.Keys) + ROWS - 1) / ROWS;
}

/** The number of units of the gradients of keys and values. */
export function attentionKeyUnits(task: usize): u32 {
  return <u32>(valueOf(task, Field.Batch) * valueOf(task, Field.KeyHeads)) * keyTilesOf(task);
}

/** Computes the gradients of the keys and values of tiles [begin, end). */
export function attentionKeyGrads(task: usize, scratch: usize, begin: u32, end: u32): void {
  openFrame(task, scratch);
  const tiles = keyTilesOf(task);
  const keyHeads = <u32>valueOf(task, Field.KeyHeads);
  const group = <u32>valueOf(task, Field.Heads) / keyHeads;
  const width = padded(task, <u32>valueOf(task, Field.Width));
  const valueWidth = padded(task, <u32>valueOf(task, Field.ValueWidth));
  for (let unit = begin; unit < end; unit++) {
    const keyHead = (unit / tiles) % keyHeads;
    setSequence(task, scratch, unit / tiles / keyHeads, keyHead * group);
    const key = (unit % tiles) * ROWS;
    const keys = <u32>slot(scratch, Slot.KeyCount);
    if (key >= keys) continue;
    const count = min(ROWS, keys - key);
    memory.fill(slot(scratch, Slot.Sums), 0, sumBytes(task, width));
    memory.fill(slot(scratch, Slot.ValueSums), 0, sumBytes(task, valueWidth));
    for (let head = keyHead * group; head < (keyHead + 1) * group; head++) {
      setHead(task, scratch, head);
      const queries = <u32>slot(scratch, Slot.QueryCount);
      for (let first: u32 = 0; first < queries; first += ROWS)
        addKeyGrads(task, scratch, first, min(ROWS, queries - first), key, count);
    }
    finishKeys(task, scratch, Operand.Dk, keyHead, key, count, width);
    finishKeys(task, scratch, Operand.Dv, keyHead, key, count, valueWidth);
  }
}

/**
 * Adds the contributions of queries [first, first + rows) of the head to the gradients of keys [key, key + count) and of their
 * values.
 */
function addKeyGrads(task: usize, frame: usize, first: u32, rows: u32, key: u32, count: u32): void {
  const t = positionOf(task, frame, first + rows - 1);
  if (endKey(task, frame, t) <= <i32>key) return;
  if (firstKey(task, positionOf(task, frame, first)) >= <i32>(key + count)) return;
  packQueries(task, frame, first, rows);
  differentiate(task, frame, first, rows, key, count, false);
  const width = padded(task, <u32>valueOf(task, Field.Width));
  const valueWidth = padded(task, <u32>valueOf(task, Field.ValueWidth));
  const depth = padded(task, rows);
  const queries = slot(frame, Slot.QueryRows);
  const grads = slot(frame, Slot.GradRows);
  const visible = slot(frame, Slot.Kept);
  transposeVisible(task, frame, count, visible);
  packTransposed(task, frame, slot(frame, Slot.Scores), depth, count);
  addBlock(task, frame, queries, width, depth, count, visible, ROWS, slot(frame, Slot.Sums));
  packTransposed(task, frame, slot(frame, Slot.ScoreGrads), depth, count);
  addBlock(task, frame, grads, valueWidth, depth, count, visible, ROWS, slot(frame, Slot.ValueSums));
}

/** Transposes the visible pairs [ROWS][inner] to [keys][ROWS]. */
function transposeVisible(task: usize, frame: usize, count: u32, to: usize): void {
  const inner = innerLength(task);
  const from = slot(frame, Slot.Visible);
  for (let key: u32 = 0; key < count; key++)
    for (let row: u32 = 0; row < ROWS; row++)
      store<u8>(to + <usize>(key * ROWS + row), load<u8>(from + <usize>(row * inner + key)));
}

/** Packs the columns of f32 [ROWS][inner] as rows of `depth` factors; the rows from `count` on are 0. */
function packTransposed(task: usize, frame: usize, scores: usize, depth: u32, count: u32): void {
  const inner = innerLength(task);
  const line = slot(frame, Slot.Line);
  const values = slot(frame, Slot.Factors);
  const exponents = slot(frame, Slot.FactorExponents);
  for (let key: u32 = 0; key < ROWS; key++) {
    for (let row: u32 = 0; row < depth; row++) {
      const value: f32 = key < count ? load<f32>(scores + ((<usize>(row * inner + key)) << 2)) : 0;
      store<f32>(line + ((<usize>row) << 2), value);
    }
    packFactors(task, frame, line, depth, key, ROWS, values, exponents);
  }
}

/** Writes the gradients of keys, or of values, of a tile. */
function finishKeys(
  task: usize,
  frame: usize,
  operand: Operand,
  keyHead: usize,
  key: u32,
  count: u32,
  width: u32,
): void {
  const isKey = operand === Operand.Dk;
  const panel = panelLength(task);
  const totals = slot(frame, Slot.Totals);
  let states = slot(frame, isKey ? Slot.Sums : Slot.ValueSums);
  for (let c: u32 = 0; c < width; c += panel) {
    storeStates(task, states, count, totals, width, c);
    states += <usize>ROWS * STATE_BYTES;
  }
  writeRows(
    task,
    frame,
    operand,
    keyHead,
    key,
    count,
    width,
    floatOf(task, isKey ? Field.Scale : Field.Keep),
  );
}

/**
 * Writes the gradients of the sinks of heads [begin, end), f32: minus the sum of 2^(sink - lse) * delta over `rows` rows in
 * each of `batches` items of the tensor of statistics.
 */
export function attentionSinkGrads(
  task: usize,
  grads: usize,
  batches: u32,
  rows: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  for (let head = begin; head < end; head++) {
    const sink = load<f32>(valueOf(task, Field.Sinks) + ((<usize>head) << 2)) * log2e();
    memory.fill(scratch, 0, 128);
    let termIndex: usize = 0;
    for (let b: u32 = 0; b < batches; b++) {
      const index = <usize>b * valueOf(task, Field.LseBatch) + <usize>head * valueOf(task, Field.LseHead);
      for (let i: usize = 0; i < <usize>rows; i++) {
        const lse = load<f32>(valueOf(task, Field.Lse) + ((index + i) << 2));
        let term: f32 = 0;
        if (lse !== -Infinity)
          term = powerOf(sink, lse * log2e()) * load<f32>(valueOf(task, Field.Deltas) + ((index + i) << 2));
        const lane = scratch + ((termIndex & 31) << 2);
        store<f32>(lane, load<f32>(lane) + term);
        termIndex++;
      }
    }
    store<f32>(grads + ((<usize>head) << 2), -foldLanes(scratch));
  }
}

/**
 * Sums the gradients of scores over the batches and heads that share a bias. The bias is [biasBatch, biasHeads, queries, keys];
 * its gradient has the Wide type `type`. Computes rows [begin, end) of the bias.
 */
export function attentionBiasGrads(
  task: usize,
  to: usize,
  type: u32,
  biasBatch: u32,
  biasHeads: u32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  const queries = <u32>valueOf(task, Field.Queries);
  const keys = <u32>valueOf(task, Field.Keys);
  const batch = <u32>valueOf(task, Field.Batch);
  const heads = <u32>valueOf(task, Field.Heads);
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
          const terms = valueOf(task, Field.BiasGrads) + (from << 2);
          for (let at: usize = 0; at < (<usize>count) << 2; at += 4)
            store<f32>(scratch + at, load<f32>(scratch + at) + load<f32>(terms + at));
        }
      narrow(scratch, to, type, <usize>row * keys + first, count);
    }
  }
}
