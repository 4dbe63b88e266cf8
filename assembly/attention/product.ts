// The products of an attention. A product adds, to the states of a tile of rows, the products of its factors with the panels of
// a block: state[row][column] += sum over k of factor[row][k] * block[k][column], as a chain of the datapath.

import { Kernel } from "../contract";
import { stepFunction } from "../gemm/gemm";
import { alignedExponent, exponentBytes, lowestOf, packUnscaled, valueBytes, WIDE_SHIFT } from "../gemm/pack";
import { scatter } from "../gemm/pack-lines";
import {
  Block,
  factorLine,
  factorPlacement,
  innerLength,
  packedRows,
  padded,
  panelLength,
  ROWS,
  Slot,
  STATE_BYTES,
  slot,
  stepLength,
  stepTile,
} from "./frame";
import { AttentionTask, Operand } from "./task";

/** Prepares to pack lines of `depth` factors, a multiple of the step, as packed rows of the tile. */
export function openFactors(task: AttentionTask, frame: usize, depth: u32): void {
  const step = stepLength(task);
  const placement = factorPlacement(frame);
  placement.padded = depth;
  placement.step = step;
  placement.stepPitch = <usize>(step * packedRows(frame));
  placement.inner = 1;
  const line = factorLine(frame);
  line.operand = 0;
  line.values = slot(frame, Slot.LineValues);
  line.exponents = slot(frame, Slot.LineExponents);
}

/**
 * Packs a line of f32 factors as row `row` of the packed rows in the slot `name`, whose exponents are in the next slot. The
 * packed values are [step][rows][step]. `openFactors` sets the number of factors.
 */
export function packFactors(task: AttentionTask, frame: usize, name: Slot, line: usize, row: u32): void {
  const kernel = task.kernel;
  const bytes = valueBytes(kernel);
  const placement = factorPlacement(frame);
  const first = <usize>(row * placement.step);
  const values = slot(frame, name) + first * bytes;
  if (kernel === Kernel.Plain) {
    scatter(placement, line, values, bytes);
    return;
  }
  const packed = factorLine(frame);
  packed.line = line;
  packUnscaled(task, packed, placement.padded);
  scatter(placement, packed.values, values, bytes);
  scatter(placement, packed.exponents, slot(frame, name + 1) + (first << 1), 2);
}

/** The exponents of four values of a panel, as the kernel reads them, in i32 lanes. */
function panelExponents(value: v128, bias: v128, lowest: v128, zero: v128): v128 {
  const size = v128.and(value, i32x4.splat(0x7fffffff));
  const exponent = i32x4.max_s(i32x4.add(i32x4.shr_u(size, 23), bias), lowest);
  return i32x4.shl(v128.bitselect(zero, exponent, i32x4.eq(size, i32x4.splat(0))), WIDE_SHIFT);
}

/** Packs the f32 panel [depth][panel] in the slot `Natural` to the slots of packed panels. `depth` is a multiple of the step. */
function packPanel(task: AttentionTask, frame: usize, depth: u32): void {
  const natural = slot(frame, Slot.Natural);
  let values = slot(frame, Slot.Panel);
  if (task.kernel === Kernel.Plain) {
    memory.copy(values, natural, <usize>depth * STATE_BYTES);
    return;
  }
  const word = task.w.word;
  const bias = i32x4.splat((alignedExponent(Kernel.Wide, 1, 0) >> WIDE_SHIFT) - 127);
  const lowest = i32x4.splat(alignedExponent(Kernel.Wide, 1, lowestOf(word)) >> WIDE_SHIFT);
  const zero = i32x4.splat(alignedExponent(Kernel.Wide, 1, task.zeroOperand) >> WIDE_SHIFT);
  const low = i32x4.splat(0xffff);
  let exponents = slot(frame, Slot.PanelExponents);
  // two rows of 8 columns per iteration: the exponents of both are interleaved column by column
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

/**
 * Adds the products of packed rows with the packed panel to their states, step by step. The packed rows are in the slot `name`,
 * and their exponents in the next slot; SingleFactors has 4 rows.
 */
function addPanel(task: AttentionTask, frame: usize, name: Slot, depth: u32, states: usize): void {
  const kernel = task.kernel;
  const step = stepLength(task);
  const rows: u32 = name === Slot.SingleFactors ? 4 : packedRows(frame);
  const factors = slot(frame, name);
  const factorExponents = slot(frame, name + 1);
  const panel = slot(frame, Slot.Panel);
  const panelExponents = slot(frame, Slot.PanelExponents);
  const columns = panelLength(task);
  // scales and states must differ modulo a page, as in the product of matrices
  const free = slot(frame, Slot.Scales);
  const tile = stepTile(frame);
  tile.step = step;
  tile.rows = rows;
  tile.states = states;
  tile.scales = free + ((states + 2048 - free) & 4095);
  const run = stepFunction(kernel);
  for (let k: u32 = 0; k < depth; k += step) {
    const values = <usize>k * valueBytes(kernel);
    const exponents = <usize>k * exponentBytes(kernel);
    tile.x = factors + values * rows;
    tile.xe = factorExponents + exponents * rows;
    tile.w = panel + values * columns;
    tile.we = panelExponents + exponents * columns;
    run(task, tile);
  }
}

/** Copies columns [first, first + panel) of the rows of a block to the slot `Natural`. */
function takeColumns(frame: usize, block: Block, first: u32, panel: u32): void {
  let to = slot(frame, Slot.Natural);
  const bytes = (<usize>panel) << 2;
  let from = block.values + ((<usize>first) << 2);
  for (let k: u32 = 0; k < block.depth; k++) {
    memory.copy(to, from, bytes);
    to += bytes;
    from += (<usize>block.width) << 2;
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

/** Stores the states of a panel as columns of f32 rows, which are `pitch` elements apart, from `to` on; -0 becomes +0. */
export function storeStates(task: AttentionTask, states: usize, rows: u32, to: usize, pitch: u32): void {
  const wide = task.kernel !== Kernel.Plain;
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
    to += (<usize>pitch) << 2;
  }
}

/**
 * Computes products, each from an accumulator of zero, as f32 [ROWS][inner]: keys times the packed queries to the slot Scores, or
 * for operand V values times the packed gradients to the slot ScoreGrads. The rows of the block are in the slot KeyRows, or
 * ValueRows.
 */
export function multiplyRows(task: AttentionTask, frame: usize, operand: Operand): void {
  const isKey = operand === Operand.K;
  const width = padded(task, <u32>(isKey ? task.width : task.valueWidth));
  const count = padded(task, <u32>slot(frame, Slot.BlockCount));
  const block = slot(frame, isKey ? Slot.KeyRows : Slot.ValueRows);
  const factors = isKey ? Slot.Queries : Slot.Grads;
  const out = slot(frame, isKey ? Slot.Scores : Slot.ScoreGrads);
  const pitch = innerLength(task);
  const panel = panelLength(task);
  const rows = packedRows(frame);
  const states = slot(frame, Slot.States);
  for (let first: u32 = 0; first < count; first += panel) {
    takeRows(frame, block, width, first, panel);
    packPanel(task, frame, width);
    memory.fill(states, 0, <usize>rows * STATE_BYTES);
    addPanel(task, frame, factors, width, states);
    storeStates(task, states, rows, out + ((<usize>first) << 2), pitch);
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
 * Adds the products of the packed factors in the slot `Factors` and the block's values to the block's sums. The factor of an
 * invisible pair is zero and must add nothing, even if the block contains a NaN or an infinity. If the block contains one, each
 * row is computed separately, from a copy of the panel in which its hidden elements are zero.
 */
export function addBlock(task: AttentionTask, frame: usize, block: Block): void {
  const panel = panelLength(task);
  const width = block.width;
  const depth = block.depth;
  const isFinite = areFinite(block.values, <usize>width * depth);
  let sums = block.sums;
  for (let first: u32 = 0; first < width; first += panel) {
    takeColumns(frame, block, first, panel);
    if (isFinite) {
      packPanel(task, frame, depth);
      addPanel(task, frame, Slot.Factors, depth, sums);
    } else {
      for (let row: u32 = 0; row < block.rows; row++) {
        takeColumns(frame, block, first, panel);
        addRow(task, frame, block, row, sums + <usize>row * STATE_BYTES);
      }
    }
    sums += <usize>ROWS * STATE_BYTES;
  }
}

/** As `addBlock`, for one row and the panel in the slot `Natural`. */
function addRow(task: AttentionTask, frame: usize, block: Block, row: u32, state: usize): void {
  const depth = block.depth;
  const visible = block.visible + <usize>row * block.pitch;
  const line = (<usize>panelLength(task)) << 2;
  const natural = slot(frame, Slot.Natural);
  for (let k: u32 = 0; k < depth; k++)
    if (load<u8>(visible + k) === 0) memory.fill(natural + <usize>k * line, 0, line);
  packPanel(task, frame, depth);
  const step = <usize>stepLength(task);
  copySteps(frame, Slot.Factors, depth, row, step * valueBytes(task.kernel));
  copySteps(frame, Slot.FactorExponents, depth, row, step * exponentBytes(task.kernel));
  const states = slot(frame, Slot.SingleStates);
  for (let copy: usize = 0; copy < 4; copy++) memory.copy(states + copy * STATE_BYTES, state, STATE_BYTES);
  addPanel(task, frame, Slot.SingleFactors, depth, states);
  memory.copy(state, states, STATE_BYTES);
}

/**
 * Copies the steps of row `row` of the packed rows in a slot, Factors or FactorExponents, to each of the 4 rows in SingleFactors
 * or SingleExponents. A step has `bytes` bytes.
 */
function copySteps(frame: usize, name: Slot, depth: u32, row: u32, bytes: usize): void {
  if (bytes === 0) return;
  const steps = <usize>(depth / factorPlacement(frame).step);
  let to = slot(frame, name === Slot.Factors ? Slot.SingleFactors : Slot.SingleExponents);
  let source = slot(frame, name) + <usize>row * bytes;
  for (let i: usize = 0; i < steps; i++) {
    for (let copy: usize = 0; copy < 4; copy++) memory.copy(to + copy * bytes, source, bytes);
    to += 4 * bytes;
    source += <usize>packedRows(frame) * bytes;
  }
}
