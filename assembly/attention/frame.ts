// The memory of one thread of an attention: a record of pointers and numbers (the frame), followed by the buffers to which it
// points. Sizes are rounded up to whole steps of the datapath and whole panels of a product.

import { Kernel } from "../contract";
import { ALIGNED_BYTES } from "../gemm/narrow";
import { exponentBytes, LINE_BYTES, Line, valueBytes } from "../gemm/pack";
import { PLACEMENT_BYTES, Placement } from "../gemm/pack-lines";
import { stepOf } from "../gemm/task";
import { TILE_BYTES, Tile } from "../gemm/tile";
import { AttentionTask } from "./task";

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
  /** The records of `factorLine`, `factorPlacement`, `stepTile` and `factorBlock`. */
  Records,
  End,
  /** The packed rows of the tile: a multiple of 4, up to ROWS. */
  PackedRows,
  // numbers of the sequence and head (sequence.ts)
  Batch,
  Head,
  KeyHead,
  FirstQuery,
  QueryCount,
  FirstKey,
  KeyCount,
  /** `innerLength` of the task. */
  Inner,
  /**
   * The rows of the tile of queries: the first one and their number. Each query has a row for each of TileHeads heads, from Head
   * on; row r of a sequence belongs to query r / TileHeads (sequence.ts).
   */
  TileFirst,
  TileRows,
  TileHeads,
  /** The keys of the block, or of the tile of keys: the first one and their number. */
  BlockKey,
  BlockCount,
  Count,
}

/** A block of rows that a product multiplies by packed factors and sums (product.ts, addBlock). */
@unmanaged
export class Block {
  /** f32 [depth][width]. */
  values: usize;
  width: u32;
  depth: u32;
  /** The number of rows of factors in use. */
  rows: u32;
  /** A byte for each pair of a row and an element of the depth, [ROWS][pitch]. */
  visible: usize;
  pitch: u32;
  /** [panels][ROWS] states. */
  sums: usize;
}

const BLOCK_BYTES: usize = 32;

export function slot(frame: usize, name: Slot): usize {
  return load<usize>(frame + ((<usize>name) << 3));
}
export function setSlot(frame: usize, name: Slot, value: usize): void {
  store<usize>(frame + ((<usize>name) << 3), value);
}

/** A line of factors before and after it is packed. */
export function factorLine(frame: usize): Line {
  return changetype<Line>(slot(frame, Slot.Records));
}

/** The placement of packed lines of factors. */
export function factorPlacement(frame: usize): Placement {
  return changetype<Placement>(slot(frame, Slot.Records) + LINE_BYTES);
}

/** The operands of a step. */
export function stepTile(frame: usize): Tile {
  return changetype<Tile>(slot(frame, Slot.Records) + LINE_BYTES + PLACEMENT_BYTES);
}

export function factorBlock(frame: usize): Block {
  return changetype<Block>(slot(frame, Slot.Records) + LINE_BYTES + PLACEMENT_BYTES + TILE_BYTES);
}

/** The number of products of one step. */
export function stepLength(task: AttentionTask): u32 {
  return task.kernel === Kernel.Plain ? PLAIN_STEP : stepOf(task);
}

/** The columns of a panel. */
export function panelLength(task: AttentionTask): u32 {
  return <u32>(STATE_BYTES / valueBytes(task.kernel));
}

/** `count`, rounded up to whole steps and panels. */
export function padded(task: AttentionTask, count: u32): u32 {
  const unit = max(stepLength(task), panelLength(task));
  return ((count + unit - 1) / unit) * unit;
}

/** The maximum number of keys or queries of a tile over which a product sums. */
export function innerLength(task: AttentionTask): u32 {
  return padded(task, max(ROWS, <u32>task.blockKeys));
}

/** The larger of the widths of heads. */
function outerLength(task: AttentionTask): u32 {
  return padded(task, max(<u32>task.width, <u32>task.valueWidth));
}

/**
 * Reserves `bytes` bytes for a slot of the frame at `position`, if `frame` is not null. Returns the position after these bytes.
 */
function reserveSlot(frame: usize, name: Slot, position: f64, bytes: f64): f64 {
  if (frame) setSlot(frame, name, frame + <usize>position);
  return position + Math.ceil(bytes / 16) * 16;
}

/** Lays out the buffers after the frame. Returns the number of bytes. With a null `frame` it writes nothing. */
function layOut(task: AttentionTask, frame: usize): f64 {
  const inner = <f64>innerLength(task);
  const outer = <f64>outerLength(task);
  const longest = max(inner, outer);
  const value = <f64>valueBytes(task.kernel);
  const exponent = <f64>exponentBytes(task.kernel);
  const panel = <f64>panelLength(task);
  const rows = <f64>ROWS;
  const states = <f64>STATE_BYTES;
  const slots = Math.ceil(<f64>Slot.Count / 2) * 16;
  let position = reserveSlot(frame, Slot.Line, slots, longest * 4);
  position = reserveSlot(frame, Slot.LineValues, position, longest * 8);
  position = reserveSlot(frame, Slot.LineExponents, position, longest * 2);
  position = reserveSlot(frame, Slot.Natural, position, longest * panel * 4);
  position = reserveSlot(frame, Slot.Panel, position, longest * panel * value);
  position = reserveSlot(frame, Slot.PanelExponents, position, longest * panel * exponent);
  position = reserveSlot(frame, Slot.Queries, position, rows * outer * value);
  position = reserveSlot(frame, Slot.QueryExponents, position, rows * outer * exponent);
  position = reserveSlot(frame, Slot.Grads, position, rows * outer * value);
  position = reserveSlot(frame, Slot.GradExponents, position, rows * outer * exponent);
  position = reserveSlot(frame, Slot.Factors, position, rows * inner * value);
  position = reserveSlot(frame, Slot.FactorExponents, position, rows * inner * exponent);
  position = reserveSlot(frame, Slot.States, position, rows * states);
  position = reserveSlot(frame, Slot.Sums, position, (outer / panel) * rows * states);
  position = reserveSlot(frame, Slot.ValueSums, position, (outer / panel) * rows * states);
  position = reserveSlot(frame, Slot.Scores, position, rows * inner * 4);
  position = reserveSlot(frame, Slot.ScoreGrads, position, rows * inner * 4);
  position = reserveSlot(frame, Slot.QueryRows, position, rows * outer * 4);
  position = reserveSlot(frame, Slot.GradRows, position, rows * outer * 4);
  position = reserveSlot(frame, Slot.KeyRows, position, inner * outer * 4);
  position = reserveSlot(frame, Slot.ValueRows, position, inner * outer * 4);
  position = reserveSlot(frame, Slot.Totals, position, rows * outer * 4);
  position = reserveSlot(frame, Slot.RowStates, position, rows * <f64>ROW_STATE_BYTES);
  position = reserveSlot(frame, Slot.Visible, position, rows * inner);
  position = reserveSlot(frame, Slot.Kept, position, rows * inner);
  position = reserveSlot(frame, Slot.SingleFactors, position, 4 * inner * value);
  position = reserveSlot(frame, Slot.SingleExponents, position, 4 * inner * exponent);
  position = reserveSlot(frame, Slot.SingleStates, position, 4 * states);
  position = reserveSlot(frame, Slot.Scales, position, <f64>ALIGNED_BYTES + 4096);
  const records = LINE_BYTES + PLACEMENT_BYTES + TILE_BYTES + BLOCK_BYTES;
  position = reserveSlot(frame, Slot.Records, position, <f64>records);
  return reserveSlot(frame, Slot.End, position, 0);
}

/** The number of scratch bytes that each thread passes, 16-byte aligned. The number may exceed the address space. */
export function attentionScratch(task: AttentionTask): f64 {
  return layOut(task, 0);
}

/**
 * Writes the pointers of the frame at the beginning of the scratch memory, for tiles of ROWS packed rows and of one head.
 */
export function openFrame(task: AttentionTask, frame: usize): void {
  layOut(task, frame);
  setSlot(frame, Slot.PackedRows, ROWS);
  setSlot(frame, Slot.TileHeads, 1);
  setSlot(frame, Slot.Inner, innerLength(task));
}

/** The number of rows of a tile that its products compute. */
export function packedRows(frame: usize): u32 {
  return <u32>slot(frame, Slot.PackedRows);
}
