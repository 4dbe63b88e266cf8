// Elements that are brought to the range of their format by more than one multiplication (contract.ts, ElementScaling). They
// are computed before they are encoded, which then has no multiplier.

import { ElementScaling } from "../contract";
import { roundFour } from "../core/wide";

/** Whether elements are to be computed before they are encoded. */
export function isComputed(scaling: u32): bool {
  return (scaling & (ElementScaling.Divides | ElementScaling.Typed | ElementScaling.AddsZero)) !== 0;
}

function scaled(x: v128, factor: v128, scaling: u32, type: u32): v128 {
  let y = scaling & ElementScaling.Divides ? f32x4.div(x, factor) : f32x4.mul(x, factor);
  if (scaling & ElementScaling.Typed) y = roundFour(type, y);
  return scaling & ElementScaling.AddsZero ? f32x4.add(y, f32x4.splat(0)) : y;
}

/**
 * Writes `count` elements x[i], multiplied or divided by their factors, to `dst`, which may be x. M is that of encodeRun: with
 * u32, element i has the factor at index i >> shift, and shift is at least 2; with v128, the one at index i. `type` is the Wide
 * type of the input.
 */
export function scaleRun<M>(
  x: usize,
  dst: usize,
  count: i32,
  factors: usize,
  shift: i32,
  scaling: u32,
  type: u32,
): void {
  const whole = count & -4;
  for (let i = 0; i < whole; i += 4) {
    const at = (<usize>i) << 2;
    const factor =
      sizeof<M>() === 16
        ? v128.load(factors + at)
        : v128.load32_splat(factors + ((<usize>(i >> shift)) << 2));
    v128.store(dst + at, scaled(v128.load(x + at), factor, scaling, type));
  }
  for (let i = whole; i < count; ++i) {
    const at = (<usize>i) << 2;
    const factor = factors + (sizeof<M>() === 16 ? at : (<usize>(i >> shift)) << 2);
    const y = scaled(v128.load32_splat(x + at), v128.load32_splat(factor), scaling, type);
    v128.store32_lane(dst + at, y, 0);
  }
}
