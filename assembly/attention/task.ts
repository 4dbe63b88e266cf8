// The parameters of an attention (numerics.md §10). They are in a task block of AttentionTask.Bytes bytes, which begins with the
// task block of a product: its datapath and operand formats are those of all products of the attention. The caller allocates
// the block, fills it by the setters below and passes it to the functions of forward.ts and backward.ts.

import { AttentionTask, GemmTask } from "../contract";
import { get, getFloat, put, putFloat } from "../core/record";

export const enum Field {
  Batch,
  Heads,
  KeyHeads,
  Queries,
  Keys,
  Width,
  ValueWidth,
  Type,
  BlockKeys,
  SplitKeys,
  Scale,
  AlignsEnd,
  Left,
  Right,
  QueryLengths,
  QueryStarts,
  KeyLengths,
  KeyStarts,
  Cumulative,
  Mask,
  MaskBatch,
  MaskHead,
  Bias,
  BiasType,
  BiasBatch,
  BiasHead,
  BiasBeforeScale,
  Slopes,
  SlopeBatch,
  Softcap,
  InverseSoftcap,
  Sinks,
  Threshold,
  Keep,
  SeedLow,
  SeedHigh,
  Offset,
  AllHeads,
  FirstHead,
  Lse,
  LseBatch,
  LseHead,
  Maxima,
  Deltas,
  BiasGrads,
  Pages,
  PageLength,
  PageCount,
  PagesOfSequence,
  Tensors,
}

const enum TensorField {
  Data,
  Batch,
  Row,
  Head,
}

/** The bytes of the record of one tensor. */
const TENSOR_BYTES: usize = 32;

/** The tensors of an attention, by their numbers in `attentionTensor`: the inputs and the results of both passes. */
export const enum Operand {
  Q,
  K,
  V,
  Out,
  Grad,
  Dq,
  Dk,
  Dv,
}

/**
 * Sets the maximum lengths `queries` and `keys` of a sequence, and the sizes of heads. `type` is the Wide type of all operands.
 */
export function attentionShape(
  task: usize,
  batch: u32,
  heads: u32,
  keyHeads: u32,
  queries: u32,
  keys: u32,
  width: u32,
  valueWidth: u32,
  type: u32,
): void {
  memory.fill(task + GemmTask.Bytes, 0, AttentionTask.Bytes - GemmTask.Bytes);
  set(task, Field.Batch, batch);
  set(task, Field.Heads, heads);
  set(task, Field.KeyHeads, keyHeads);
  set(task, Field.Queries, queries);
  set(task, Field.Keys, keys);
  set(task, Field.Width, width);
  set(task, Field.ValueWidth, valueWidth);
  set(task, Field.Type, type);
}

/** Sets the plan and the factor of scores. `splitKeys` is a multiple of `blockKeys`; 0 means no splits. */
export function attentionPlan(task: usize, blockKeys: u32, splitKeys: u32, scale: f32): void {
  set(task, Field.BlockKeys, blockKeys);
  set(task, Field.SplitKeys, splitKeys);
  setFloat(task, Field.Scale, scale);
}

/**
 * Sets tensor `operand` of `Operand`: element (b, row, head, d) is at index b * batchStride + row * rowStride + head *
 * headStride + d. A null pointer means that the tensor is absent.
 */
export function attentionTensor(
  task: usize,
  operand: u32,
  data: usize,
  batchStride: usize,
  rowStride: usize,
  headStride: usize,
): void {
  const record = tensorOf(task, operand);
  put(record, TensorField.Data, data);
  put(record, TensorField.Batch, batchStride);
  put(record, TensorField.Row, rowStride);
  put(record, TensorField.Head, headStride);
}

/**
 * Sets the lengths of sequences, i32. A null pointer means that every sequence has all rows. If `cumulative`, sequence b has
 * lengths[b + 1] - lengths[b] rows, which begin at row starts[b], or at lengths[b] if `starts` is null.
 */
export function attentionLengths(
  task: usize,
  queryLengths: usize,
  queryStarts: usize,
  keyLengths: usize,
  keyStarts: usize,
  cumulative: bool,
): void {
  set(task, Field.QueryLengths, queryLengths);
  set(task, Field.QueryStarts, queryStarts);
  set(task, Field.KeyLengths, keyLengths);
  set(task, Field.KeyStarts, keyStarts);
  set(task, Field.Cumulative, cumulative ? 1 : 0);
}

/**
 * Sets which keys are visible: a query at t sees key j if t - left <= j <= t + right. A negative `left` or `right` means no
 * bound. `mask` has a byte for each pair, [.., queries, keys], nonzero if the key is hidden. Its strides are in bytes; a
 * dimension of size 1 has stride 0.
 */
export function attentionMask(
  task: usize,
  alignsEnd: bool,
  left: i32,
  right: i32,
  mask: usize,
  batchStride: usize,
  headStride: usize,
): void {
  set(task, Field.AlignsEnd, alignsEnd ? 1 : 0);
  set(task, Field.Left, left);
  set(task, Field.Right, right);
  set(task, Field.Mask, mask);
  set(task, Field.MaskBatch, batchStride);
  set(task, Field.MaskHead, headStride);
}

/** Sets a bias [.., queries, keys] of Wide type `type`. Its strides are in elements; a dimension of size 1 has stride 0. */
export function attentionBias(
  task: usize,
  bias: usize,
  type: u32,
  batchStride: usize,
  headStride: usize,
  beforeScale: bool,
): void {
  set(task, Field.Bias, bias);
  set(task, Field.BiasType, type);
  set(task, Field.BiasBatch, batchStride);
  set(task, Field.BiasHead, headStride);
  set(task, Field.BiasBeforeScale, beforeScale ? 1 : 0);
}

/**
 * Sets the slopes of ALiBi, f32 at b * slopeBatch + head; the bound `softcap` of scores with its inverse (0 means no bound); and
 * the sink of each head, f32. A null pointer means that there are no slopes or no sinks.
 */
export function attentionScores(
  task: usize,
  slopes: usize,
  slopeBatch: usize,
  softcap: f32,
  inverseSoftcap: f32,
  sinks: usize,
): void {
  set(task, Field.Slopes, slopes);
  set(task, Field.SlopeBatch, slopeBatch);
  setFloat(task, Field.Softcap, softcap);
  setFloat(task, Field.InverseSoftcap, inverseSoftcap);
  set(task, Field.Sinks, sinks);
}

/**
 * Sets dropout: a key whose 16 random bits are below `threshold` is dropped. `firstHead` is the number of the first head among
 * all `allHeads` heads of the model.
 */
export function attentionDropout(
  task: usize,
  threshold: u32,
  keep: f32,
  seedLow: u32,
  seedHigh: u32,
  offset: u32,
  allHeads: u32,
  firstHead: u32,
): void {
  set(task, Field.Threshold, threshold);
  setFloat(task, Field.Keep, keep);
  set(task, Field.SeedLow, seedLow);
  set(task, Field.SeedHigh, seedHigh);
  set(task, Field.Offset, offset);
  set(task, Field.AllHeads, allHeads);
  set(task, Field.FirstHead, firstHead);
}

/**
 * Sets the statistics of rows: f32 at b * batchStride + head * headStride + row, where `row` is the row of q. These are lse, the
 * maximum score and, for the backward pass, delta. The last two may be null.
 */
export function attentionStatistics(
  task: usize,
  lse: usize,
  batchStride: usize,
  headStride: usize,
  maxima: usize,
  deltas: usize,
): void {
  set(task, Field.Lse, lse);
  set(task, Field.LseBatch, batchStride);
  set(task, Field.LseHead, headStride);
  set(task, Field.Maxima, maxima);
  set(task, Field.Deltas, deltas);
}

/**
 * Declares that keys and values are stored in pages of `length` rows. Row i of sequence b is row i % length of page pages[b *
 * pagesOfSequence + i / length], i32. The batch stride of their tensors is the stride of a page. A page number outside of
 * `count` pages is replaced by the nearest one.
 */
export function attentionPages(
  task: usize,
  pages: usize,
  length: u32,
  count: u32,
  pagesOfSequence: u32,
): void {
  set(task, Field.Pages, pages);
  set(task, Field.PageLength, length);
  set(task, Field.PageCount, count);
  set(task, Field.PagesOfSequence, pagesOfSequence);
}

/** Sets where the backward pass writes the gradients of scores before rounding: f32 [batch, heads, queries, keys]. */
export function attentionScoreGrads(task: usize, grads: usize): void {
  set(task, Field.BiasGrads, grads);
}

export function valueOf(task: usize, field: Field): usize {
  return get(task + GemmTask.Bytes, <usize>field);
}
export function floatOf(task: usize, field: Field): f32 {
  return getFloat(task + GemmTask.Bytes, <usize>field);
}
function set(task: usize, field: Field, value: usize): void {
  put(task + GemmTask.Bytes, <usize>field, value);
}
function setFloat(task: usize, field: Field, value: f32): void {
  putFloat(task + GemmTask.Bytes, <usize>field, value);
}

function tensorOf(task: usize, operand: u32): usize {
  return task + GemmTask.Bytes + ((<usize>Field.Tensors) << 3) + <usize>operand * TENSOR_BYTES;
}

export function dataOf(task: usize, operand: Operand): usize {
  return get(tensorOf(task, operand), TensorField.Data);
}

/** The index of element (b, row, head, 0) of a tensor. */
export function indexOf(task: usize, operand: Operand, b: usize, row: usize, head: usize): usize {
  const record = tensorOf(task, operand);
  return (
    b * get(record, TensorField.Batch) +
    row * get(record, TensorField.Row) +
    head * get(record, TensorField.Head)
  );
}

/** The index of element (b, row, head, 0) of keys or values, which may be stored in pages. */
export function keyIndex(task: usize, operand: Operand, b: usize, row: usize, head: usize): usize {
  const pages = valueOf(task, Field.Pages);
  if (!pages) return indexOf(task, operand, b, row, head);
  const length = valueOf(task, Field.PageLength);
  const pageIndex = b * valueOf(task, Field.PagesOfSequence) + row / length;
  const page = load<i32>(pages + (pageIndex << 2));
  const last = <i32>valueOf(task, Field.PageCount) - 1;
  return indexOf(task, operand, min(max(page, 0), last), row % length, head);
}
