// Adds up the partial sums of a matrix product. A chain is the sum of one interval of k for one element of D.
// finishChain scales the chain if the promotion says so, and adds it to the total of that element. storeTotals writes
// the totals of a split of K to D, or adds them to D.
//
// Every operation is rounded once to f32. finishChain computes in f64, where the product of two f32 is exact. Rounding
// a sum of two f32 first to f64 and then to f32 gives the same f32. A sum with a product is rounded to odd first.

import { Promotion } from "../contract";
import { canonical, canonicalFour } from "../core/wide";
import { addToOdd } from "./datapath";
import { scaleAt, valueBytes } from "./pack";
import { GemmTask, Operand, scaleRowOf } from "./task";
import { Tile } from "./tile";

/** A unit of a product: a block of rows of D by a panel of columns. */
@unmanaged
export class Unit extends Tile {
  row: u32;
  column: u32;
  /** The number of columns. */
  panel: u32;
  /** The packed rows of X and columns of W, with their exponents, from k = 0 on. */
  packedX: usize;
  packedXe: usize;
  packedW: usize;
  packedWe: usize;
  /** Totals, f32 [rows][panel]. Memory for the scales of the columns follows. */
  totals: usize;
}

/** The size of a Unit in bytes. */
export const UNIT_BYTES: usize = 64;

/**
 * The block scale of row `line` of an operand at element k. Beyond the end of the operand, the last row is used
 * instead.
 */
function chainScale(record: Operand, line: u32, count: u32, k: u32): f32 {
  return scaleAt(
    record,
    scaleRowOf(record, min(line, count - 1)) + <usize>(k / record.block) * record.blockStride,
  );
}

/** Loads two f32 as f64 lanes. */
function loadPair(pointer: usize): v128 {
  return v128.promote_low<f32>(v128.load64_zero(pointer));
}

function storePair(pointer: usize, pair: v128): void {
  v128.store64_lane(pointer, v128.demote_zero<f64>(pair), 0);
}

/** a * b rounded to f32, lane by lane, as f64. */
function productPair(a: v128, b: v128): v128 {
  return v128.promote_low<f32>(v128.demote_zero<f64>(v128.mul<f64>(a, b)));
}

/**
 * Adds the chains of a unit that start at `k`, whose sums are its states, to its totals. The scales of W's columns are gathered
 * in memory after the totals.
 */
export function finishChain(task: GemmTask, unit: Unit, k: u32): void {
  const row = unit.row;
  const column = unit.column;
  const rows = unit.rows;
  const panel = unit.panel;
  let states = unit.states;
  let totals = unit.totals;
  const promotion = task.promotion;
  const scaled = promotion >= Promotion.ScaleProduct;
  const columnScales = totals + ((<usize>rows) << 6);
  const xRecord = task.x;
  const wRecord = task.w;
  if (scaled) {
    for (let j: u32 = 0; j < panel; j++)
      store<f32>(columnScales + (j << 2), chainScale(wRecord, column + j, task.columns, k));
  }
  const bytes = valueBytes(task.kernel);
  const copies = bytes === 4 && promotion === Promotion.None;
  for (let r: u32 = 0; r < rows; r++) {
    const scale: f32 = scaled ? chainScale(xRecord, row + r, task.rows, k) : 1;
    if (copies) memory.copy(totals, states, 64);
    else {
      const rowScale = f64x2.splat(scale);
      for (let j: u32 = 0; j < panel; j += 2) {
        const chain = bytes === 8 ? v128.load(states + (j << 3)) : loadPair(states + (j << 2));
        const cell = totals + (j << 2);
        let sum = chain;
        if (promotion === Promotion.Add) sum = v128.add<f64>(loadPair(cell), chain);
        else if (promotion === Promotion.ScaleProduct) {
          const factor = productPair(rowScale, loadPair(columnScales + (j << 2)));
          sum = addToOdd(v128.mul<f64>(chain, factor), loadPair(cell));
        } else if (promotion === Promotion.ScaleChain) {
          const product = productPair(chain, rowScale);
          sum = addToOdd(v128.mul<f64>(product, loadPair(columnScales + (j << 2))), loadPair(cell));
        }
        storePair(cell, sum);
      }
    }
    states += 64;
    totals += panel << 2;
  }
}

/** Writes the totals of a unit inside D to D or, if `adds`, adds them to D. A NaN becomes 0x7fffffff. */
export function storeTotals(task: GemmTask, unit: Unit, adds: bool): void {
  const row = unit.row;
  const column = unit.column;
  const panel = unit.panel;
  let totals = unit.totals;
  const columns = task.columns;
  const width = min(panel, columns - column);
  const height = min(unit.rows, task.rows - row);
  for (let r: u32 = 0; r < height; r++) {
    const target = task.output + ((<usize>(row + r) * columns + column) << 2);
    let j: u32 = 0;
    for (; j + 4 <= width && !adds; j += 4)
      v128.store(target + (j << 2), canonicalFour(v128.load(totals + (j << 2))));
    for (; j < width; j++) {
      const total = load<f32>(totals + (j << 2));
      const cell = target + (j << 2);
      store<f32>(cell, canonical(adds ? load<f32>(cell) + total : total));
    }
    totals += panel << 2;
  }
}
