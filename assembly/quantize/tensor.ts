// Quantization with one scale per tensor, for elements that are not scaled by a single multiplication (ElementScaling).

import { CODES_BYTES } from "../cast/cast";
import { At, ENCODER_BYTES, prepare, storageOf } from "../cast/encoder";
import { Overflow, Rounding } from "../contract";
import { asF32 } from "../core/wide";
import { encodeScaled } from "./scaling";

const RUN: i32 = 2048;

/** The arguments of `encodeComputed`. */
@unmanaged
class EncodeComputedTask {
  src: usize;
  srcType: u32;
  dst: usize;
  word: u32;
  scaling: u32;
  factor: f32;
}

/**
 * dst[i] = the code of src[i], scaled by `factor` and the ElementScaling bits in `scaling`, for i in [begin, end). Ties round to
 * even, overflow saturates. `begin` is a multiple of 64. Indices are below 2^32.
 */
export function encodeComputed(task: EncodeComputedTask, scratch: usize, begin: u32, end: u32): void {
  const storage = storageOf(task.word);
  const codes = scratch + ENCODER_BYTES;
  const factors = codes + CODES_BYTES;
  const buffer = factors + 16;
  prepare(scratch, task.word, Rounding.TiesToEven, Overflow.Saturate, storage);
  store<usize>(scratch, codes, At.Codes);
  store<u32>(scratch, task.scaling, At.Scaling);
  store<u32>(scratch, task.srcType, At.SourceType);
  store<usize>(scratch, buffer, At.Result);
  store<f32>(factors, task.factor);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    const x = asF32(task.src, task.srcType, i, count, buffer);
    const to = task.dst + <usize>(((<u64>i) << storage) >> 3);
    encodeScaled<u32>(scratch, x, to, count, factors);
  }
}
