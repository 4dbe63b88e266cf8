// The scores of a row (numerics.md §10.2), from the products of its query with keys, and the random bits of dropout (§10.5).

import { Draws, philox4 } from "../core/random";
import { tanh } from "../core/special-functions";
import { loadWide } from "../core/wide";
import { fma32 } from "../gemm/datapath";
import { Slot, slot } from "./frame";
import { headOf, positionOf, queryOf, scoreRow, visibleRow } from "./sequence";
import { AttentionTask } from "./task";

const LOG2E = reinterpret<f64>(0x3ff71547652b82fe);

/** log2 e as f32. */
export function log2e(): f32 {
  return <f32>LOG2E;
}

/** Whether scores are multiplied by the scale before other operations. Otherwise the scale is a part of `scoreFactor`. */
function isScaledFirst(task: AttentionTask): bool {
  const hasBiasAfter = task.bias !== 0 && !task.biasBeforeScale;
  return hasBiasAfter || task.slopes !== 0 || task.softcap !== 0;
}

/** The factor c: z * c is the exponent of 2 that a score z stands for. */
export function scoreFactor(task: AttentionTask): f32 {
  return isScaledFirst(task) ? <f32>LOG2E : <f32>(<f64>task.scale * LOG2E);
}

/** The factor that converts a score z to a logit: the scale, or 1 if z is already scaled. */
export function logitFactor(task: AttentionTask): f32 {
  return isScaledFirst(task) ? 1 : task.scale;
}

/** The address of the bias of row `row` of the tile and key 0. */
function biasRow(task: AttentionTask, frame: usize, row: u32): usize {
  const bytes: usize = task.biasType === 0 ? 4 : 2;
  const index =
    slot(frame, Slot.Batch) * task.biasBatch +
    headOf(frame, row) * task.biasHead +
    <usize>queryOf(frame, row) * task.keys;
  return task.bias + index * bytes;
}

/**
 * Replaces the products of row `row` of the tile with the keys of the block by their scores z. Hidden keys are skipped. If
 * `tanhs` is not null, it receives the values of tanh.
 */
export function applyScores(task: AttentionTask, frame: usize, row: u32, tanhs: usize): void {
  const first = <i32>slot(frame, Slot.BlockKey);
  const count = <i32>slot(frame, Slot.BlockCount);
  const visible = visibleRow(frame, row);
  const scores = scoreRow(frame, Slot.Scores, row);
  const isBefore = task.biasBeforeScale;
  const bias = task.bias ? biasRow(task, frame, row) : 0;
  if (!isScaledFirst(task) && !bias) return;
  const type = <u32>task.biasType;
  const scaledFirst = isScaledFirst(task);
  const scale = task.scale;
  const softcap = task.softcap;
  const inverse = task.inverseSoftcap;
  const slopes = task.slopes;
  const t = positionOf(task, frame, <i32>queryOf(frame, row));
  let slope: f32 = 0;
  if (slopes) {
    const index = slot(frame, Slot.Batch) * task.slopeBatch + headOf(frame, row);
    slope = load<f32>(slopes + (index << 2));
  }
  for (let j = 0; j < count; j++) {
    if (load<u8>(visible + j) === 0) continue;
    const cell = scores + ((<usize>j) << 2);
    let z = load<f32>(cell);
    if (bias && isBefore) z += loadWide(bias, type, first + j);
    if (scaledFirst) {
      z *= scale;
      if (softcap !== 0) {
        const bounded = tanh(z * inverse);
        if (tanhs) store<f32>(tanhs + ((<usize>j) << 2), bounded);
        z = softcap * bounded;
      }
      if (bias && !isBefore) z += loadWide(bias, type, first + j);
      if (slopes) z = fma32(slope, -(<f32>abs<i64>(<i64>t - first - j)), z);
    }
    store<f32>(cell, z);
  }
}

/**
 * Writes one byte for each key of the block to Kept: 1 if dropout keeps it for row `row` of the tile, else 0. The first key is
 * a multiple of 16.
 */
export function fillKept(task: AttentionTask, frame: usize, row: u32): void {
  const first = <i32>slot(frame, Slot.BlockKey);
  const count = <i32>slot(frame, Slot.BlockCount);
  const kept = slot(frame, Slot.Kept);
  const bits = slot(frame, Slot.LineValues);
  const draws = changetype<Draws>(bits + 64);
  draws.seedLo = <u32>task.seedLow;
  draws.seedHi = <u32>task.seedHigh;
  draws.offsetHi = <u32>task.offset;
  const threshold = <u32>task.threshold;
  draws.offsetLo = <u32>(slot(frame, Slot.Batch) * task.allHeads + task.firstHead) + <u32>headOf(frame, row);
  const t = positionOf(task, frame, <i32>queryOf(frame, row));
  let group: i32 = -1;
  for (let j = first; j < first + count; j++) {
    if (j >> 5 !== group) {
      group = j >> 5;
      philox4(draws, ((<u64>t) << 32) | <u64>((<u32>group) << 2), bits);
    }
    const half = (((j >> 3) & 3) << 1) + (j & 1);
    const drawn: u32 = load<u16>(bits + ((<usize>((j >> 1) & 3)) << 4) + ((<usize>half) << 1));
    store<u8>(kept + (j - first), drawn < threshold ? 0 : 1);
  }
}
