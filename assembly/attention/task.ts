// The task of an attention (numerics.md §10). The fields for the datapath and the formats are the base class ProductTask.

import { ProductTask } from "../gemm/task";

/** The tensors of an attention: the inputs and the results of both passes. */
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
 * Element (b, row, head, d) is at index b * batchStride + row * rowStride + head * headStride + d. A null pointer means that the
 * tensor is absent.
 */
@unmanaged
export class HeadTensor {
  data: usize;
  batchStride: usize;
  rowStride: usize;
  headStride: usize;
}

@unmanaged
export class AttentionTask extends ProductTask {
  q: HeadTensor;
  k: HeadTensor;
  v: HeadTensor;
  out: HeadTensor;
  grad: HeadTensor;
  dq: HeadTensor;
  dk: HeadTensor;
  dv: HeadTensor;
  /** The maximum lengths `queries` and `keys` of a sequence, the sizes of heads, and the Wide type of all operands. */
  batch: usize;
  heads: usize;
  keyHeads: usize;
  queries: usize;
  keys: usize;
  width: usize;
  valueWidth: usize;
  type: u32;
  /** The plan, and the factor of scores. `splitKeys` is a multiple of `blockKeys`; 0 means no splits. */
  blockKeys: usize;
  splitKeys: usize;
  scale: f32;
  /**
   * The lengths of sequences, i32. A null pointer means that every sequence has all rows. If `cumulative`, sequence b has
   * lengths[b + 1] - lengths[b] rows, which begin at row starts[b], or at lengths[b] if `starts` is null.
   */
  queryLengths: usize;
  queryStarts: usize;
  keyLengths: usize;
  keyStarts: usize;
  cumulative: bool;
  /**
   * Visibility of keys: a query at t sees key j if t - left <= j <= t + right. A negative `left` or `right` means no bound.
   * `mask` has a byte for each pair, [.., queries, keys], nonzero if the key is hidden. Its strides are in bytes; a dimension of
   * size 1 has stride 0.
   */
  alignsEnd: bool;
  left: i32;
  right: i32;
  mask: usize;
  maskBatch: usize;
  maskHead: usize;
  /** A bias [.., queries, keys] of a Wide type. Its strides are in elements; a dimension of size 1 has stride 0. */
  bias: usize;
  biasType: u32;
  biasBatch: usize;
  biasHead: usize;
  biasBeforeScale: bool;
  /**
   * The slopes of ALiBi, f32 at b * slopeBatch + head; the bound `softcap` of scores with its inverse (0 means no bound); and the
   * sink of each head, f32. A null pointer means that there are no slopes or no sinks.
   */
  slopes: usize;
  slopeBatch: usize;
  softcap: f32;
  inverseSoftcap: f32;
  sinks: usize;
  /**
   * Dropout: a key whose 16 random bits are below `threshold` is dropped. `firstHead` is the number of the first head among all
   * `allHeads` heads of the model.
   */
  threshold: u32;
  keep: f32;
  seedLow: u32;
  seedHigh: u32;
  offset: u32;
  allHeads: usize;
  firstHead: usize;
  /**
   * Keys and values in pages of `pageLength` rows. Row i of sequence b is row i % pageLength of page pages[b * pagesOfSequence +
   * i / pageLength], i32. The batch stride of their tensors is the stride of a page. A page number outside of `pageCount` pages
   * is replaced by the nearest one. A null pointer means that there are no pages.
   */
  pages: usize;
  pageLength: usize;
  pageCount: usize;
  pagesOfSequence: usize;
  /**
   * The statistics of rows: f32 at b * lseBatch + head * lseHead + row, where `row` is the row of q, in each of
   * `statisticBatches` items. These are lse, the maximum score and, for the backward pass, delta. The last two may be null.
   */
  lse: usize;
  lseBatch: usize;
  lseHead: usize;
  statisticBatches: u32;
  maxima: usize;
  deltas: usize;
  /** The largest maximum of each head, f32: the result of `attentionMaxima`. */
  maxLogits: usize;
  /** The gradients of scores before rounding, f32 [batch, heads, queries, keys]; null if they are not kept. */
  biasGrads: usize;
  /**
   * The results of `attentionBiasGrads`, [biasBatches, biasHeads, queries, keys] of a Wide type, and of `attentionSinkGrads`,
   * f32.
   */
  dbias: usize;
  dbiasType: u32;
  dbiasBatches: u32;
  dbiasHeads: u32;
  dsinks: usize;
}

function tensorOf(task: AttentionTask, operand: Operand): HeadTensor {
  switch (operand) {
    case Operand.Q:
      return task.q;
    case Operand.K:
      return task.k;
    case Operand.V:
      return task.v;
    case Operand.Out:
      return task.out;
    case Operand.Grad:
      return task.grad;
    case Operand.Dq:
      return task.dq;
    case Operand.Dk:
      return task.dk;
    default:
      return task.dv;
  }
}

export function dataOf(task: AttentionTask, operand: Operand): usize {
  return tensorOf(task, operand).data;
}

/** The index of element (b, row, head, 0) of a tensor. */
export function indexOf(task: AttentionTask, operand: Operand, b: usize, row: usize, head: usize): usize {
  const tensor = tensorOf(task, operand);
  return b * tensor.batchStride + row * tensor.rowStride + head * tensor.headStride;
}

/** The index of element (b, row, head, 0) of keys or values, which may be stored in pages. */
export function keyIndex(task: AttentionTask, operand: Operand, b: usize, row: usize, head: usize): usize {
  const pages = task.pages;
  if (!pages) return indexOf(task, operand, b, row, head);
  const length = task.pageLength;
  const pageIndex = b * task.pagesOfSequence + row / length;
  const page = load<i32>(pages + (pageIndex << 2));
  const last = <i32>task.pageCount - 1;
  return indexOf(task, operand, min(max(page, 0), last), row % length, head);
}
