// The scores of a row (numerics.md §10.2), from the products of its query with keys, and the random bits of dropout (§10.5).

import { Draws, philox4 } from "../core/random";
import { tanh } from "../core/special-functions";
import { loadWide } from "../core/wide";
import { fma32 } from "../gemm/datapath";
import { Slot, slot } from "./frame";
import { positionOf } from "./sequence";
import { Field, floatOf, valueOf } from "./task";

const LOG2E = reinterpret<f64>(0x3ff71547652b82fe);

/** log2 e as f32. */
export function log2e(): f32 {
  return <f32>LOG2E;
}

/** Whether scores are multiplied by the scale before other operations. Otherwise the scale is a part of `scoreFactor`. */
function isScaledFirst(task: usize): bool {
  const hasBiasAfter = valueOf(task, Field.Bias) !== 0 && valueOf(task, Field.BiasBeforeScale) === 0;
  return hasBiasAfter || valueOf(task, Field.Slopes) !== 0 || floatOf(task, Field.Softcap) !== 0;
}

/** The factor c by which a score z becomes a power of two. */
export function scoreFactor(task: usize): f32 {
  return isScaledFirst(task) ? <f32>LOG2E : <f32>(<f64>floatOf(task, Field.Scale) * LOG2E);
}

/** The factor by which a score z becomes a logit: the scale, or 1 if z has been scaled. */
export function logitFactor(task: usize): f32 {
  return isScaledFirst(task) ? 1 : floatOf(task, Field.Scale);
}

/** The address of the bias of query i and key 0. */
function biasRow(task: usize, frame: usize, i: i32): usize {
  const bytes: usize = valueOf(task, Field.BiasType) === 0 ? 4 : 2;
  const index =
    slot(frame, Slot.Batch) * valueOf(task, Field.BiasBatch) +
    slot(frame, Slot.Head) * valueOf(task, Field.BiasHead) +
    <usize>i * valueOf(task, Field.Keys);
  return valueOf(task, Field.Bias) + index * bytes;
}

/**
 * Replaces the products of query i with keys [first, first + count) by their scores z. `visible` has a byte for each key; hidden
 * keys are skipped. If `tanhs` is not null, it receives the values of tanh.
 */
export function applyScores(
  task: usize,
  frame: usize,
  i: i32,
  first: i32,
  count: i32,
  visible: usize,
  scores: usize,
  tanhs: usize,
): void {
  const isBefore = valueOf(task, Field.BiasBeforeScale) !== 0;
  const bias = valueOf(task, Field.Bias) ? biasRow(task, frame, i) : 0;
  if (!isScaledFirst(task) && !bias) return;
  const type = <u32>valueOf(task, Field.BiasType);
  const scaledFirst = isScaledFirst(task);
  const scale = floatOf(task, Field.Scale);
  const softcap = floatOf(task, Field.Softcap);
  const inverse = floatOf(task, Field.InverseSoftcap);
  const slopes = valueOf(task, Field.Slopes);
  const t = positionOf(task, frame, i);
  let slope: f32 = 0;
  if (slopes) {
    const index = slot(frame, Slot.Batch) * valueOf(task, Field.SlopeBatch) + slot(frame, Slot.Head);
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
 * Writes one byte for each key of [first, first + count): 1 if dropout keeps it for query i, else 0. The bytes are the frame's
 * Kept. `first` is a multiple of 16.
 */
export function fillKept(task: usize, frame: usize, i: i32, first: i32, count: i32): void {
  const kept = slot(frame, Slot.Kept);
  const bits = slot(frame, Slot.LineValues);
  const draws = changetype<Draws>(bits + 64);
  draws.seedLo = <u32>valueOf(task, Field.SeedLow);
  draws.seedHi = <u32>valueOf(task, Field.SeedHigh);
  draws.offsetHi = <u32>valueOf(task, Field.Offset);
  const threshold = <u32>valueOf(task, Field.Threshold);
  draws.offsetLo =
    <u32>(slot(frame, Slot.Batch) * valueOf(task, Field.AllHeads) + valueOf(task, Field.FirstHead)) +
    <u32>slot(frame, Slot.Head);
  const t = positionOf(task, frame, i);
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
