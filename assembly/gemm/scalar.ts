// The dot-add step (gemm/datapath.ts) for any row of the datapath table, one output at a time. This function defines
// the result of every tensor-core datapath.

import { accumulatorExponent, pow2, truncateSum } from "./datapath";
import { alignBitsOf, fractionBitsOf, groupOf, zeroAccumulatorOf } from "./task";

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
 * The exponent of a term: the sum of its operands' exponents. A group whose products are all zero has the exponent of
 * zero.
 */
function termExponent(x: usize, xe: usize, w: usize, we: usize, group: u32, zero: i32): i32 {
  if (group > 1 && isZeroGroup(x, w, group)) return zero;
  return <i32>load<i16>(xe) + <i32>load<i16>(we);
}

/** Returns the accumulator `c` after one step. A term is a product, or the exact sum of `group` products. */
function dotAdd(task: usize, c: f64, x: usize, xe: usize, w: usize, we: usize, step: u32): f64 {
  const zero = zeroAccumulatorOf(task);
  const group = groupOf(task);
  let largest = accumulatorExponent(c, zero);
  for (let k: usize = 0; k < step; k += group) {
    largest = max(
      largest,
      termExponent(x + (k << 3), xe + (k << 1), w + (k << 6), we + (k << 4), group, zero),
    );
  }
  const alignBits = alignBitsOf(task);
  const scale = pow2(alignBits - largest);
  let sum = trunc(c * scale);
  for (let k: usize = 0; k < step; k += group)
    sum += trunc(groupSum(x + (k << 3), w + (k << 6), group) * scale);
  return truncateSum(sum * pow2(largest - alignBits), fractionBitsOf(task));
}

/**
 * Computes one step of `rows` rows by 8 columns. X, W and `state` have the layout of `stepWide`. The exponents are plain i16;
 * the exponents of W are [step][8].
 */
export function stepScalar(
  task: usize,
  x: usize,
  xe: usize,
  w: usize,
  we: usize,
  step: u32,
  rows: u32,
  state: usize,
  _scales: usize,
): void {
  for (let row: u32 = 0; row < rows; row++) {
    for (let j: usize = 0; j < 8; j++) {
      const cell = state + (j << 3);
      store<f64>(cell, dotAdd(task, load<f64>(cell), x, xe, w + (j << 3), we + (j << 1), step));
    }
    x += step << 3;
    xe += step << 1;
    state += 64;
  }
}
