// The dot-add step (gemm/datapath.ts) for any row of the datapath table, one output at a time. This function defines
// the result of every tensor-core datapath.

import { accumulatorExponent, pow2, truncateSum } from "./datapath";
import { ProductTask } from "./task";
import { Tile } from "./tile";

/** The exact sum of `group` products; consecutive elements of W are 64 bytes apart. */
function groupSum(x: usize, w: usize, group: u32): f64 {
  let sum: f64 = 0;
  for (let i: usize = 0; i < group; i++) sum += load<f64>(x + (i << 3)) * load<f64>(w + (i << 6));
  return sum;
}

function isZeroGroup(x: usize, w: usize, group: u32): bool {
  for (let i: usize = 0; i < group; i++)
    if (load<f64>(x + (i << 3)) * load<f64>(w + (i << 6)) !== 0) return false;
  return true;
}

/**
 * The exponent of a term: `exponents`, the sum of its operands' exponents. A group whose products are all zero has the exponent
 * of zero.
 */
function termExponent(x: usize, w: usize, exponents: i32, group: u32, zero: i32): i32 {
  return group > 1 && isZeroGroup(x, w, group) ? zero : exponents;
}

/**
 * Returns the accumulator `c` of a row and of column `column` after one step. A term is a product, or
 * the exact sum of `group` products.
 */
function dotAdd(task: ProductTask, tile: Tile, c: f64, row: u32, column: usize): f64 {
  const step = tile.step;
  const x = tile.x + <usize>row * ((<usize>step) << 3);
  const xe = tile.xe + <usize>row * ((<usize>step) << 1);
  const w = tile.w + (column << 3);
  const we = tile.we + (column << 1);
  const zero = task.zeroAccumulator;
  const group = task.group;
  let largest = accumulatorExponent(c, zero);
  for (let k: usize = 0; k < step; k += group) {
    const exponents = <i32>load<i16>(xe + (k << 1)) + <i32>load<i16>(we + (k << 4));
    largest = max(largest, termExponent(x + (k << 3), w + (k << 6), exponents, group, zero));
  }
  const alignBits = task.alignBits;
  const scale = pow2(alignBits - largest);
  let sum = trunc(c * scale);
  for (let k: usize = 0; k < step; k += group)
    sum += trunc(groupSum(x + (k << 3), w + (k << 6), group) * scale);
  return truncateSum(sum * pow2(largest - alignBits), task.fractionBits);
}

/**
 * Computes one step of `rows` rows by 8 columns. X, W and `state` have the layout of `stepWide`. The exponents are plain i16;
 * the exponents of W are [step][8].
 */
export function stepScalar(task: ProductTask, tile: Tile): void {
  for (let row: u32 = 0; row < tile.rows; row++) {
    for (let j: usize = 0; j < 8; j++) {
      const cell = tile.states + ((<usize>row) << 6) + (j << 3);
      store<f64>(cell, dotAdd(task, tile, load<f64>(cell), row, j));
    }
  }
}
