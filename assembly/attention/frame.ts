// The memory of one thread of an attention: a record of pointers and numbers (the frame), followed by the buffers to which it
// points. Sizes are rounded up to whole steps of the datapath and whole panels of a product.

import { Kernel } from "../contract";
import { get, put } from "../core/record";
import { ALIGNED_BYTES } from "../gemm/narrow";
import { exponentBytes, valueBytes } from "../gemm/pack";
import { kernelOf, stepOf } from "../gemm/task";
import { Field, valueOf } from "./task";

/** The rows of a tile: queries, or keys in the kernels of the gradients of keys and values. */
export const ROWS: u32 = 64;

/** Bytes of the state of one row of one panel in a product. */
export const STATE_BYTES: usize = 64;

/** The step of a product of f32 operands. Their sums do not depend on it. */
const PLAIN_STEP: u32 = 16;

/** Bytes of the running sums of one row (softmax.ts). */
export const ROW_STATE_BYTES: usize = 64;

export const enum Slot {
  /** One line of f32 values, followed by its packed values and exponents. */
  Line,
  LineValues,
  LineExponents,
  /** A panel of an operand before it is packed: f32 [depth][panel]. */
  Natural,
  /** A packed panel. */
  Panel,
  PanelExponents,
  /** The packed queries of a tile. */
  Queries,
  QueryExponents,
  /** The packed gradients of the outputs of a tile. */
  Grads,
  GradExponents,
  /** Packed rows of factors, which a product sums over keys or queries. */
  Factors,
  FactorExponents,
  /** The states of the rows of one panel of scores. */
  States,
  /** The states of the rows of all panels of a result, [panels][rows]. */
  Sums,
  /** The states of the rows of all panels of the gradients of values, [panels][rows]. */
  ValueSums,
  /** The products of queries with keys, and the values that replace them: f32 [rows][inner]. */
  Scores,
  /** The products of the gradients of outputs with values: f32 [rows][inner]. */
  ScoreGrads,
  /** Rows of the tensors as f32 [inner][width]. */
  QueryRows,
  GradRows,
  KeyRows,
  ValueRows,
  /** Totals of a result, f32 [rows][width]. */
  Totals,
  RowStates,
  /** One byte for each pair of a tile, [rows][inner]: 1 if the key is visible. */
  Visible,
  /** One byte for each pair of a tile: 1 if the key is not dropped. */
  Kept,
  /** One row of factors in a group of four rows, and the states of these rows. */
  SingleFactors,
  SingleExponents,
  SingleStates,
  Scales,
  End,
  // numbers of the sequence and head (sequence.ts)
  Batch,
  Head,
  KeyHead,
  FirstQuery,
  QueryCount,
  FirstKey,
  KeyCount,
  Count,
}

export function slot(frame: usize, name: Slot): usize {
  return get(frame, <usize>name);
}
export function setSlot(frame: usize, name: Slot, value: usize): void {
  put(frame, <usize>name, value);
}

/** The number of products of one step. */
export function stepLength(task: usize): u32 {
  return kernelOf(task) === Kernel.Plain ? PLAIN_STEP : stepOf(task);
}

/** The columns of a panel. */
export function panelLength(task: usize): u32 {
  return <u32>(STATE_BYTES / valueBytes(kernelOf(task)));
}

/** `count`, rounded up to whole steps and panels. */
export function padded(task: usize, count: u32): u32 {
  const unit = max(stepLength(task), panelLength(task));
  return ((count + unit - 1) / unit) * unit;
}

/** The maximum number of keys or queries of a tile over which a product sums. */
export function innerLength(task: usize): u32 {
  return padded(task, max(ROWS, <u32>valueOf(task, Field.BlockKeys)));
}

/** The larger of the widths of heads. */
function outerLength(task: usize): u32 {
  return padded(task, max(<u32>valueOf(task, Field.Width), <u32>valueOf(task, Field.ValueWidth)));
}

/**
 * Reserves `bytes` bytes for a slot of the frame at `position`, if `frame` is not null. Returns the position after these bytes.
 */
function place(frame: usize, name: Slot, position: f64, bytes: f64): f64 {
  if (frame) setSlot(frame, name, frame + <usize>position);
  return position + Math.ceil(bytes / 16) * 16;
}

/** Lays out the buffers after the frame. Returns the number of bytes. With a null `frame` it writes nothing. */
function layOut(task: usize, frame: usize): f64 {
  const inner = <f64>innerLength(task);
  const outer = <f64>outerLength(task);
  const longest = max(inner, outer);
  const value = <f64>valueBytes(kernelOf(task));
  const exponent = <f64>exponentBytes(kernelOf(task));
  const panel = <f64>panelLength(task);
  const rows = <f64>ROWS;
  const states = <f64>STATE_BYTES;
  let at = place(frame, Slot.Line, <f64>Slot.Count * 8, longest * 4);
  at = place(frame, Slot.LineValues, at, longest * 8);
  at = place(frame, Slot.LineExponents, at, longest * 2);
  at = place(frame, Slot.Natural, at, longest * panel * 4);
  at = place(frame, Slot.Panel, at, longest * panel * value);
  at = place(frame, Slot.PanelExponents, at, longest * panel * exponent);
  at = place(frame, Slot.Queries, at, rows * outer * value);
  at = place(frame, Slot.QueryExponents, at, rows * outer * exponent);
  at = place(frame, Slot.Grads, at, rows * outer * value);
  at = place(frame, Slot.GradExponents, at, rows * outer * exponent);
  at = place(frame, Slot.Factors, at, rows * inner * value);
  at = place(frame, Slot.FactorExponents, at, rows * inner * exponent);
  at = place(frame, Slot.States, at, rows * states);
  at = place(frame, Slot.Sums, at, (outer / panel) * rows * states);
  at = place(frame, Slot.ValueSums, at, (outer / panel) * rows * states);
  at = place(frame, Slot.Scores, at, rows * inner * 4);
  at = place(frame, Slot.ScoreGrads, at, rows * inner * 4);
  at = place(frame, Slot.QueryRows, at, rows * outer * 4);
  at = place(frame, Slot.GradRows, at, rows * outer * 4);
  at = place(frame, Slot.KeyRows, at, inner * outer * 4);
  at = place(frame, Slot.ValueRows, at, inner * outer * 4);
  at = place(frame, Slot.Totals, at, rows * outer * 4);
  at = place(frame, Slot.RowStates, at, rows * <f64>ROW_STATE_BYTES);
  at = place(frame, Slot.Visible, at, rows * inner);
  at = place(frame, Slot.Kept, at, rows * inner);
  at = place(frame, Slot.SingleFactors, at, 4 * inner * value);
  at = place(frame, Slot.SingleExponents, at, 4 * inner * exponent);
  at = place(frame, Slot.SingleStates, at, 4 * states);
  at = place(frame, Slot.Scales, at, <f64>ALIGNED_BYTES + 4096);
  return place(frame, Slot.End, at, 0);
}

/** The number of scratch bytes that each thread passes, 16-byte aligned. The number may exceed the address space. */
export function attentionScratch(task: usize): f64 {
  return layOut(task, 0);
}

/** Writes the pointers of the frame at the beginning of the scratch memory. */
export function openFrame(task: usize, frame: usize): void {
  layOut(task, frame);
}
