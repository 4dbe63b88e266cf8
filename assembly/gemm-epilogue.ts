// From accumulators to D: scale, beta and bias in f32, one rounding each, then one to the output format.

import { Rounding } from "./contract";
import { canonical, fma32 } from "./datapath";
import {
  accumulatorScaleOf,
  addendOf,
  addendTypeOf,
  amaxOf,
  betaOf,
  biasOf,
  biasTypeOf,
  columnsOf,
  outputOf,
  splitsOf,
  targetOf,
  targetOverflowOf,
  targetScaleOf,
  targetWordOf,
} from "./gemm-task";
import { encode, magnitudeBits } from "./minifloat";
import { loadWide } from "./wide";

/** s * acc + beta * C; with split-K it is the product by beta that is fused. */
function combine(acc: f32, s: f32, c: f32, beta: f32, split: bool): f32 {
  if (beta === 0) return s * acc;
  return split ? fma32(beta, c, s * acc) : fma32(s, acc, beta * c);
}

/** Raises the f32 at `pointer` to `amax`, whatever other threads do; magnitudes order as integers. */
function raise(pointer: usize, amax: u32): void {
  let seen = atomic.load<u32>(pointer);
  while (seen < amax) {
    const found = atomic.cmpxchg<u32>(pointer, seen, amax);
    if (found === seen) return;
    seen = found;
  }
}

/** Rows `begin` to `end` of D, from the accumulators that `gemm` wrote (gemmScaling, gemmBias, gemmTarget). */
export function gemmEpilogue(task: usize, begin: u32, end: u32): void {
  const columns = <usize>columnsOf(task);
  const s = accumulatorScaleOf(task);
  const beta = betaOf(task);
  const split = splitsOf(task) > 1;
  const bias = biasOf(task);
  const word = targetWordOf(task);
  const target = targetOf(task);
  let amax: u32 = 0;
  for (let row: usize = begin; row < end; row++) {
    for (let j: usize = 0; j < columns; j++) {
      const index = row * columns + j;
      const c: f32 = beta === 0 ? 0 : loadWide(addendOf(task), addendTypeOf(task), index);
      let x = combine(load<f32>(outputOf(task) + (index << 2)), s, c, beta, split);
      if (bias) x += loadWide(bias, biasTypeOf(task), j);
      if (!isNaN(x)) amax = max(amax, reinterpret<u32>(x) & 0x7fffffff);
      if (word === 0) store<f32>(target + (index << 2), canonical(x));
      else {
        const scaled = reinterpret<u32>(x * targetScaleOf(task));
        const code = encode(scaled, word, Rounding.TiesToEven, targetOverflowOf(task), 0);
        if (magnitudeBits(word) < 8) store<u8>(target + index, code);
        else store<u16>(target + (index << 1), code);
      }
    }
  }
  if (amaxOf(task)) raise(amaxOf(task), amax);
}
