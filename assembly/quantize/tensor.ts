// Quantization with one scale per tensor, for elements that are not scaled by a single multiplication (ElementScaling).

import { CODES_BYTES } from "../cast/cast";
import { ENCODER_BYTES, prepare, storageOf } from "../cast/encoder";
import { Overflow, Rounding } from "../contract";
import { asF32 } from "../core/wide";
import { encodeScaled, SINGLE_FACTOR_SHIFT } from "./scaling";

const RUN: i32 = 2048;

/**
 * dst[i] = the code of src[i], scaled by `factor` and the ElementScaling bits in `scaling`, for i in [begin, end). Ties round to
 * even, overflow saturates. `begin` is a multiple of 64. Indices are below 2^32.
 */
export function encodeComputed(
  src: usize,
  srcType: u32,
  dst: usize,
  word: u32,
  scaling: u32,
  factor: f32,
  scratch: usize,
  begin: u32,
  end: u32,
): void {
  const storage = storageOf(word);
  const codes = scratch + ENCODER_BYTES;
  const factors = codes + CODES_BYTES;
  const buffer = factors + 16;
  prepare(scratch, word, Rounding.TiesToEven, Overflow.Saturate, storage);
  store<f32>(factors, factor);
  for (let i = begin; i < end; i += RUN) {
    const count = <i32>min<u32>(end - i, RUN);
    const x = asF32(src, srcType, i, count, buffer);
    const to = dst + <usize>(((<u64>i) << storage) >> 3);
    encodeScaled<u32>(
      x,
      buffer,
      to,
      count,
      factors,
      SINGLE_FACTOR_SHIFT,
      scaling,
      srcType,
      word,
      scratch,
      0,
      codes,
    );
  }
}
