// x * factor for an array of a wide type: one f32 multiplication and one rounding per element.

import { Wide } from "../contract";
import { CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/**
 * Computes elements [begin, end) of out, which may alias x. `scratch` is one buffer of the calling thread
 * (core/scratch.ts).
 */
export function scaled(
  x: usize,
  xType: u32,
  out: usize,
  outType: u32,
  factor: f32,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const values = asF32(x, xType, i, count, scratch);
    if (outType === Wide.F32) {
      scaleTo(out + (i << 2), values, factor, count);
    } else {
      scaleTo(scratch, values, factor, count);
      narrow(scratch, out, outType, i, count);
    }
  }
}

/** out[i] = x[i] * factor for exactly `count` elements; out may alias x. */
function scaleTo(out: usize, x: usize, factor: f32, count: usize): void {
  const factors = f32x4.splat(factor);
  for (const end = out + ((count & ~3) << 2); out < end; out += 16, x += 16) {
    v128.store(out, f32x4.mul(v128.load(x), factors));
  }
  for (const end = out + ((count & 3) << 2); out < end; out += 4, x += 4) {
    store<f32>(out, load<f32>(x) * factor);
  }
}
