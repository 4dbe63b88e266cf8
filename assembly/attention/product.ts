// The products of an attention. A product adds, to the states of a tile of rows, the products of its factors with the panels of
// a block: state[row][column] += sum over k of factor[row][k] * block[k][column], as a chain of the datapath.

import { Kernel } from "../contract";
import { stepFunction } from "../gemm/gemm";
import { alignedExponent, exponentBytes, lowestOf, packUnscaled, valueBytes, WIDE_SHIFT } from "../gemm/pack";
import { scatter } from "../gemm/pack-lines";
import { kernelOf, operandOf, wordOf, zeroOperandOf } from "../gemm/task";
import { packedRows, panelLength, ROWS, Slot, STATE_BYTES, slot, stepLength } from "./frame";

/**
 * Packs a line of `depth` f32 factors, a multiple of the step, as row `row` of `rows` rows. The packed values are [step][rows]
 * [step].
 */
export function packFactors(
  task: usize,
  frame: usize,
  line: usize,
  depth: u32,
  row: u32,
  rows: u32,
  values: usize,
  exponents: usize,
): void {
  const kernel = kernelOf(task);
  const step = stepLength(task);
  const bytes = valueBytes(kernel);
  if (kernel === Kernel.Plain) {
    scatter(line, values + <usize>(row * step) * bytes, bytes, depth, step, step * rows, 1);
    return;
  }
  const lineValues = slot(frame, Slot.LineValues);
  const lineExponents = slot(frame, Slot.LineExponents);
  packUnscaled(task, 0, line, depth, lineValues, lineExponents);
  scatter(lineValues, values + <usize>(row * step) * bytes, bytes, depth, step, step * rows, 1);
  scatter(lineExponents, exponents + ((<usize>(row * step)) << 1), 2, depth, step, step * rows, 1);
}

/** The exponents of four values of a panel, as the kernel reads them, in i32 lanes. */
function panelExponents(value: v128, bias: v128, lowest: v128, zero: v128): v128 {
  const size = v128.and(value, i32x4.splat(0x7fffffff));
  const exponent = i32x4.max_s(i32x4.add(i32x4.shr_u(size, 23), bias), lowest);
  return i32x4.shl(v128.bitselect(zero, exponent, i32x4.eq(size, i32x4.splat(0))), WIDE_SHIFT);
}

/** Packs the f32 panel [depth][panel] in the slot `Natural` to the slots of packed panels. `depth` is a multiple of the step. */
function packPanel(task: usize, frame: usize, depth: u32): void {
  const natural = slot(frame, Slot.Natural);
  let values = slot(frame, Slot.Panel);
  if (kernelOf(task) === Kernel.Plain) {
    memory.copy(values, natural, <usize>depth * STATE_BYTES);
    return;
  }
  const word = wordOf(operandOf(task, 1));
  const bias = i32x4.splat((alignedExponent(Kernel.Wide, 1, 0) >> WIDE_SHIFT) - 127);
  const lowest = i32x4.splat(alignedExponent(Kernel.Wide, 1, lowestOf(word)) >> WIDE_SHIFT);
  const zero = i32x4.splat(alignedExponent(Kernel.Wide, 1, zeroOperandOf(task)) >> WIDE_SHIFT);
  const low = i32x4.splat(0xffff);
  let exponents = slot(frame, Slot.PanelExponents);
  // two rows of 8 columns in one iteration: the exponents of both follow each other column by column
  for (let row = natural, end = natural + ((<usize>depth) << 5); row < end; row += 64) {
    for (let half: usize = 0; half < 32; half += 16) {
      const a = v128.load(row + half);
      const b = v128.load(row + half, 32);
      const to = values + (half << 1);
      v128.store(to, v128.promote_low<f32>(a));
      v128.store(to, v128.promote_low<f32>(v128.shuffle<i64>(a, a, 1, 1)), 16);
      v128.store(to, v128.promote_low<f32>(b), 64);
      v128.store(to, v128.promote_low<f32>(v128.shuffle<i64>(b, b, 1, 1)), 80);
      const first = v128.and(panelExponents(a, bias, lowest, zero), low);
      const second = i32x4.shl(panelExponents(b, bias, lowest, zero), 16);
      v128.store(exponents + half, v128.or(first, second));
    }
    values += 128;
    exponents += 32;
  }
}

/** Adds the packed panel to the states of `rows` rows, a multiple of 4, step by step. */
function addPanel(
  task: usize,
  frame: usize,
  factors: usize,
  factorExponents: usize,
  depth: u32,
  rows: u32,
  states: usize,
): void {
  const kernel = kernelOf(task);
  const step = stepLength(task);
  const panel = slot(frame, Slot.Panel);
  const panelExponents = slot(frame, Slot.PanelExponents);
  const columns = panelLength(task);
  // keeps scales and states apart modulo a page, as the product of matrices does
  const free = slot(frame, Slot.Scales);
  const scales = free + ((states + 2048 - free) & 4095);
  const run = stepFunction(kernel);
  for (let k: u32 = 0; k < depth; k += step) {
    const values = <usize>k * valueBytes(kernel);
    const exponents = <usize>k * exponentBytes(kernel);
    run(
      task,
      factors + values * rows,
      factorExponents + exponents * rows,
      panel + values * columns,
      panelExponents + exponents * columns,
      step,
      rows,
      states,
      scales,
    );
  }
}

/** Copies columns [first, first + panel) of the rows of a block f32 [depth][width] to the slot `Natural`. */
function takeColumns(frame: usize, block: usize, width: u32, first: u32, panel: u32, depth: u32): void {
  let to = slot(frame, Slot.Natural);
  const bytes = (<usize>panel) << 2;
  let from = block + ((<usize>first) << 2);
  for (let k: u32 = 0; k < depth; k++) {
    memory.copy(to, from, bytes);
    to += bytes;
    from += (<usize>width) << 2;
  }
}

/** Copies rows [first, first + panel) of a block f32 [rows][width], transposed, to the slot `Natural`: [width][panel]. */
function takeRows(frame: usize, block: usize, width: u32, first: u32, panel: u32): void {
  const to = slot(frame, Slot.Natural);
  const pitch = (<usize>width) << 2;
  const bytes = (<usize>panel) << 2;
  for (let row: u32 = 0; row < panel; row += 4) {
    let from = block + <usize>(first + row) * pitch;
    let target = to + ((<usize>row) << 2);
    for (let k: u32 = 0; k < width; k += 4) {
      const a = v128.load(from);
      const b = v128.load(from + pitch);
      const c = v128.load(from + 2 * pitch);
      const d = v128.load(from + 3 * pitch);
      const ab = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
      const cd = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
      const efgh = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
      const ijkl = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
      v128.store(target, v128.shuffle<i64>(ab, cd, 0, 2));
      v128.store(target + bytes, v128.shuffle<i64>(ab, cd, 1, 3));
      v128.store(target + 2 * bytes, v128.shuffle<i64>(efgh, ijkl, 0, 2));
      v128.store(target + 3 * bytes, v128.shuffle<i64>(efgh, ijkl, 1, 3));
      from += 16;
      target += bytes << 2;
    }
  }
}

/** Stores the states of a panel as columns [first, first + panel) of f32 [rows][width]; -0 becomes +0. */
export function storeStates(task: usize, states: usize, rows: u32, out: usize, width: u32, first: u32): void {
  const wide = kernelOf(task) !== Kernel.Plain;
  let to = out + ((<usize>first) << 2);
  for (const end = states + <usize>rows * STATE_BYTES; states < end; states += STATE_BYTES) {
    if (wide) {
      const zero = f64x2.splat(0);
      for (let c: usize = 0; c < 64; c += 16) {
        const pair = f64x2.add(v128.load(states + c), zero);
        v128.store64_lane(to + (c >> 1), f32x4.demote_f64x2_zero(pair), 0);
      }
    } else {
      memory.copy(to, states, STATE_BYTES);
    }
    to += (<usize>width) << 2;
  }
}

/**
 * Computes out[row][n] = the product over the width of a head of packed rows with the rows of a block f32 [count][width], each
 * from an accumulator of zero. `out` is f32 [rows][pitch]. `count` and `width` are padded.
 */
export function multiplyRows(
  task: usize,
  frame: usize,
  factors: usize,
  factorExponents: usize,
  block: usize,
  width: u32,
  count: u32,
  out: usize,
  pitch: u32,
): void {
  const panel = panelLength(task);
  const rows = packedRows(frame);
  const states = slot(frame, Slot.States);
  for (let first: u32 = 0; first < count; first += panel) {
    takeRows(frame, block, width, first, panel);
    packPanel(task, frame, width);
    memory.fill(states, 0, <usize>rows * STATE_BYTES);
    addPanel(task, frame, factors, factorExponents, width, rows, states);
    storeStates(task, states, rows, out, pitch, first);
  }
}

/** Whether all of `count` f32 values are finite; `count` is a multiple of 4. */
function areFinite(values: usize, count: usize): bool {
  const infinity = i32x4.splat(0x7f800000);
  let largest = i32x4.splat(0);
  for (const end = values + (count << 2); values < end; values += 16)
    largest = i32x4.max_u(largest, v128.and(v128.load(values), infinity));
  return !v128.any_true(i32x4.eq(largest, infinity));
}

/**
 * Adds to `sums`, [panels][ROWS] states, the products of the packed factors in the slot `Factors` with a block f32
 * [depth][width]. `rows` rows are used. `visible` has a byte for each pair, [ROWS][pitch]. A pair that is not visible has a
 * factor of zero and must add nothing, even if the block contains a NaN or an infinity. If the block contains one, each row is
 * computed separately, from a copy of the panel in which its hidden elements are zero.
 */
export function addBlock(
  task: usize,
  frame: usize,
  block: usize,
  width: u32,
  depth: u32,
  rows: u32,
  visible: usize,
  pitch: u32,
  sums: usize,
): void {
  const panel = panelLength(task);
  const factors = slot(frame, Slot.Factors);
  const exponents = slot(frame, Slot.FactorExponents);
  const isFinite = areFinite(block, <usize>width * depth);
  for (let first: u32 = 0; first < width; first += panel) {
    takeColumns(frame, block, width, first, panel, depth);
    if (isFinite) {
      packPanel(task, frame, depth);
      addPanel(task, frame, factors, exponents, depth, packedRows(frame), sums);
    } else {
      for (let row: u32 = 0; row < rows; row++) {
        takeColumns(frame, block, width, first, panel, depth);
        addRow(task, frame, row, depth, visible + <usize>row * pitch, sums + <usize>row * STATE_BYTES);
      }
    }
    sums += <usize>ROWS * STATE_BYTES;
  }
}

/** As `addBlock`, for one row and the panel in the slot `Natural`. */
function addRow(task: usize, frame: usize, row: u32, depth: u32, visible: usize, state: usize): void {
  const kernel = kernelOf(task);
  const step = stepLength(task);
  const line = (<usize>panelLength(task)) << 2;
  const natural = slot(frame, Slot.Natural);
  for (let k: u32 = 0; k < depth; k++)
    if (load<u8>(visible + k) === 0) memory.fill(natural + <usize>k * line, 0, line);
  packPanel(task, frame, depth);
  const factors = slot(frame, Slot.SingleFactors);
  const exponents = slot(frame, Slot.SingleExponents);
  for (let k: u32 = 0; k < depth; k += step) {
    copyStep(frame, Slot.Factors, factors, k, step, row, valueBytes(kernel));
    copyStep(frame, Slot.FactorExponents, exponents, k, step, row, exponentBytes(kernel));
  }
  const states = slot(frame, Slot.SingleStates);
  for (let copy: usize = 0; copy < 4; copy++) memory.copy(states + copy * STATE_BYTES, state, STATE_BYTES);
  addPanel(task, frame, factors, exponents, depth, 4, states);
  memory.copy(state, states, STATE_BYTES);
}

/** Copies the step at k of row `row` of the packed rows in a slot to each of 4 packed rows. */
function copyStep(frame: usize, name: Slot, to: usize, k: u32, step: u32, row: u32, bytes: usize): void {
  if (bytes === 0) return;
  const size = <usize>step * bytes;
  const source = slot(frame, name) + (<usize>k * packedRows(frame) + <usize>row * step) * bytes;
  for (let copy: usize = 0; copy < 4; copy++)
    memory.copy(to + <usize>k * bytes * 4 + copy * size, source, size);
}
