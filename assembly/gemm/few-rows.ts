// Products of few rows of X by a W in bf16, or by a W that is rounded to bf16, under a datapath with F = 25 and steps of 16. For
// few rows, packing W (gemm/pack.ts) takes longer than the products. This kernel therefore reads W as it is stored, with the k's
// of a step in the lanes. The results are bitwise equal to gemm/wide.ts, which computes all products outside the following range.
//
// A row of X is divided by a power of two that makes its largest exponent 0. All exponents here are those of the divided row.
// Range:
// - every |w| is below 2^(LARGEST_W + 1);
// - emax, the largest exponent of a step, is from LOWEST to HIGHEST;
// - the exponent of the power of two is from MIN_SHIFT to MAX_SHIFT.
//
// Within the range, zero and subnormal accumulators are below emax, and sums are zero or normal numbers of f32. An f32 product is
// exact, or it is below the unit 2^(emax - F) and is truncated to zero.
//
// A step whose products are all zero does not change the accumulator, but its emax may be below LOWEST. Such a step is computed
// with emax = LOWEST, which does not change the accumulator either, because accumulators are multiples of 2^(LOWEST - F). If emax
// is below LOWEST and X or W has elements so small that a nonzero product may be the reason, wide.ts computes the product.

import { Kernel, Promotion, Staging } from "../contract";
import { pow2 } from "./datapath";
import { BF16_WORD } from "./decode-line";
import { fillScales, isStaged, SCALES_BYTES, stageRow } from "./few-rows-stage";
import {
  ALIGN_BITS,
  LOWEST,
  largestProducts,
  Range,
  ROWS_OF_W_BYTES,
  RowsOfW,
  sumSteps,
  XStep,
} from "./few-rows-steps";
import { Line, packLine, WIDE_SHIFT } from "./pack";
import { GemmTask, Operand, stepOf } from "./task";

const MAX_ROWS: u32 = 16;
/** The rows of W in a group, and the largest number of groups that are computed at a time. */
const GROUP: u32 = 8;
const MAX_GROUPS: u32 = 4;
const STEP: u32 = 16;

const LARGEST_W: i32 = 39;
const MIN_SHIFT: i32 = -50;
const MAX_SHIFT: i32 = 60;
/**
 * Nonzero elements of X below 2^SMALLEST_X, and of W below 2^(LOWEST - SMALLEST_X), are tiny. Products of other elements are zero
 * or at least 2^LOWEST.
 */
const SMALLEST_X: i32 = -20;
/** The exponent of a zero of X, so small that its products are below LOWEST. */
const ZERO_EXPONENT: i32 = -0x8000;
/** The bytes of the shifts and sums of a step, and of the accumulators. */
const STEP_BYTES: usize = <usize>MAX_GROUPS * (16 + 128);
const STATE_BYTES: usize = <usize>MAX_GROUPS * 32;

/**
 * A row of X: the number of its steps, the exponent of its power of two, whether that exponent is in range, and whether elements
 * are tiny.
 */
const enum XRow {
  Steps = 0,
  Shift = 4,
  InRange = 8,
  HasTiny = 12,
  Bytes = 16,
}

/** Whether a product has few rows, and operands and a datapath that this kernel supports. */
export function isFewRows(task: GemmTask): bool {
  return (
    task.rows - 1 < MAX_ROWS &&
    task.columns >= GROUP &&
    task.depth > 0 &&
    task.kernel === Kernel.Wide &&
    stepOf(task) === STEP &&
    task.alignBits === ALIGN_BITS &&
    task.zeroAccumulator < MIN_SHIFT + LOWEST &&
    task.promotion === Promotion.None &&
    task.splits === 1 &&
    (isStaged(task) || (isStoredBf16(task.w) && isWithinMemory(task)))
  );
}

function isStoredBf16(record: Operand): bool {
  return record.word === BF16_WORD && record.staging === Staging.Plain && record.scale === 0;
}

/**
 * Whether the last step of the last row of W ends within the memory. Steps are read in full. Elements after the end of a row have
 * no effect, because X is zero there: the conversion to integers gives 0 for NaN.
 */
function isWithinMemory(task: GemmTask): bool {
  const end = <u64>task.w.data + (<u64>task.columns * task.depth + STEP) * 2;
  return end <= (<u64>memory.size()) << 16;
}

function stepsOf(task: GemmTask): usize {
  return (<usize>task.depth + STEP - 1) / STEP;
}

/** The bytes of scratch memory for packed rows of X and for a step; a multiple of 16. 0 if this kernel does not apply. */
export function fewRowsBytes(task: GemmTask): u64 {
  if (!isFewRows(task)) return 0;
  const steps = <u64>stepsOf(task);
  const packed = <u64>task.rows * (XRow.Bytes + steps * XStep.Bytes);
  const staged: u64 = isStaged(task) ? SCALES_BYTES + steps * (STEP << 1) * MAX_GROUPS * GROUP : 0;
  return packed + steps * 16 * MAX_GROUPS + STEP_BYTES + STATE_BYTES + ROWS_OF_W_BYTES + staged;
}

/** The position of the scales in the memory at `few`; the converted rows follow. */
function scalesAt(task: GemmTask, few: usize): usize {
  return few + <usize>fewRowsBytes(task) - SCALES_BYTES - ((stepsOf(task) * STEP) << 1) * MAX_GROUPS * GROUP;
}

/** Packs the rows of X to `few`, fewRowsBytes(task) bytes; `x` is scratch for packLine. */
export function packFewRows(task: GemmTask, x: Line, few: usize): void {
  const rows = task.rows;
  const padded = <u32>stepsOf(task) * STEP;
  if (isStaged(task)) fillScales(task, scalesAt(task, few));
  let steps = few + <usize>rows * XRow.Bytes;
  for (let m: u32 = 0; m < rows; m++) {
    packLine(task, task.promotion, x, m);
    packRow(x.values, x.exponents, padded, few + <usize>m * XRow.Bytes, steps);
    steps += stepsOf(task) * XStep.Bytes;
  }
}

/** The exponent that packLine wrote for element k of a row of X. */
function exponentAt(exponents: usize, k: u32): i32 {
  return <i32>load<i16>(exponents + (k << 1)) >> WIDE_SHIFT;
}

function packRow(values: usize, exponents: usize, padded: u32, row: usize, steps: usize): void {
  let shift = i32.MIN_VALUE;
  let smallest = i32.MAX_VALUE;
  for (let k: u32 = 0; k < padded; k++) {
    if (load<f64>(values + (k << 3)) === 0) continue;
    const exponent = exponentAt(exponents, k);
    shift = max(shift, exponent);
    smallest = min(smallest, exponent);
  }
  if (shift === i32.MIN_VALUE) shift = 0;
  const inRange = shift >= MIN_SHIFT && shift <= MAX_SHIFT;
  store<i32>(row, shift, XRow.Shift);
  store<u32>(row, u32(inRange), XRow.InRange);
  store<u32>(row, u32(smallest < shift + SMALLEST_X), XRow.HasTiny);
  store<u32>(row, inRange ? packSteps(values, exponents, padded, shift, steps) : 0, XRow.Steps);
}

/** Packs the steps of a row of X that are not all zero, and returns their number. */
function packSteps(values: usize, exponents: usize, padded: u32, shift: i32, steps: usize): u32 {
  const scale = pow2(-shift);
  let count: u32 = 0;
  for (let k: u32 = 0; k < padded; k += STEP) {
    const step = steps + <usize>count * XStep.Bytes;
    let isZero = true;
    for (let i: u32 = 0; i < STEP; i++) {
      const value = load<f64>(values + ((k + i) << 3));
      const exponent = value === 0 ? ZERO_EXPONENT : (exponentAt(exponents, k + i) - shift) << 7;
      store<i16>(step + (i << 1), <i16>exponent, XStep.Exponents);
      // of each eight values, those with odd k come first
      const lane = (i & 8) + (i & 1 ? 0 : 4) + ((i & 7) >> 1);
      store<f32>(step + (lane << 2), <f32>(value * scale), XStep.Values);
      if (value !== 0) isZero = false;
    }
    if (isZero) continue;
    store<u32>(step, k, XStep.K);
    count++;
  }
  return count;
}

/** Whether every |w| of `bytes` bytes of W is below 2^(LARGEST_W + 1). */
function isBounded(w: usize, bytes: usize): bool {
  const end = w + bytes;
  let any = i16x8.splat(0);
  let at = w;
  for (; at + 64 <= end; at += 64) {
    const low = v128.or(v128.load(at), v128.load(at, 16));
    any = v128.or(any, v128.or(low, v128.or(v128.load(at, 32), v128.load(at, 48))));
  }
  for (; at < end; at += 16) any = v128.or(any, v128.load(at));
  const magnitude = i16x8.splat(0x7fff);
  if (!v128.any_true(v128.and(any, i16x8.splat(0x4000)))) return true; // every |w| is below 2
  let largest = i16x8.splat(0);
  for (at = w; at < end; at += 16) largest = v128.max<i16>(largest, v128.and(v128.load(at), magnitude));
  return !v128.any_true(v128.ge<i16>(largest, i16x8.splat(<i16>((127 + LARGEST_W + 1) << 7))));
}

/** Whether rows of W have elements, other than zero, below 2^(LOWEST - SMALLEST_X). */
function hasTiny(w: usize, bytes: usize): bool {
  const magnitude = i16x8.splat(0x7fff);
  const one = i16x8.splat(1);
  let smallest = i16x8.splat(-1);
  for (const end = w + bytes; w < end; w += 16)
    smallest = v128.min<u16>(smallest, v128.sub<i16>(v128.and(v128.load(w), magnitude), one));
  return v128.any_true(v128.lt<u16>(smallest, i16x8.splat(<i16>(((127 + LOWEST - SMALLEST_X) << 7) - 1))));
}

/**
 * Computes `groups` * 8 columns of D from column `column` on, or fewer at the end of D. `line` is scratch for a row of W.
 * Returns false if they are outside the range; the caller then computes them by another kernel.
 */
export function multiplyFewRows(task: GemmTask, line: Line, few: usize, column: u32, groups: u32): bool {
  const columns = task.columns;
  const width = groups * GROUP;
  const first = min(column, columns - width); // at the end of D, columns before `column` are computed again, but not stored
  const staged = isStaged(task);
  const pitch = (staged ? stepsOf(task) * STEP : <usize>task.depth) << 1;
  const rows = task.rows;
  const stepBytes = stepsOf(task) * XStep.Bytes;
  const steps = few + <usize>rows * XRow.Bytes;
  const largest = steps + <usize>rows * stepBytes;
  const shifts = largest + (stepsOf(task) << 4) * MAX_GROUPS;
  const state = shifts + STEP_BYTES;
  const rowsOfW = changetype<RowsOfW>(state + STATE_BYTES);
  let w = task.w.data + first * pitch;
  if (staged) {
    const scales = scalesAt(task, few);
    w = scales + SCALES_BYTES;
    for (let row: u32 = 0; row < width; row++) stageRow(task, line, first + row, scales, w + row * pitch);
  }
  if (!isBounded(w, pitch * width)) return false;
  rowsOfW.data = w;
  rowsOfW.pitch = pitch;
  rowsOfW.groups = groups;
  rowsOfW.largest = largest;
  rowsOfW.shifts = shifts;
  for (let m: u32 = 0; m < rows; m++) {
    const row = few + <usize>m * XRow.Bytes;
    if (!load<u32>(row, XRow.InRange)) return false;
    const x = steps + <usize>m * stepBytes;
    const count = load<u32>(row, XRow.Steps);
    for (let group: usize = 0; group < groups; group++)
      largestProducts(w + group * GROUP * pitch, pitch, x, count, largest + ((group * count) << 4));
    memory.fill(state, 0, width << 2);
    const range = sumSteps(rowsOfW, x, count, state);
    if (range === Range.Above) return false;
    if (range === Range.Below && (load<u32>(row, XRow.HasTiny) || hasTiny(w, pitch * width))) return false;
    const scale = <f32>pow2(load<i32>(row, XRow.Shift));
    const target = task.output + ((<usize>m * columns + first) << 2);
    for (let j = column - first; j < width; j++)
      store<f32>(target + (j << 2), load<f32>(state + (j << 2)) * scale);
  }
  return true;
}

/** The number of groups to pass to multiplyFewRows if `units` units are left. */
export function fewRowsGroups(task: GemmTask, units: u32): u32 {
  return min(min(units, MAX_GROUPS), task.columns / GROUP);
}
