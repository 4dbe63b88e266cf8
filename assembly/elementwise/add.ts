// x + y for arrays of wide types: one f32 addition and one rounding per element.

import { Wide } from "../contract";
import { BUFFER, CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/**
 * Computes elements [begin, end) of out, which may alias x or y. `scratch` has three buffers of the calling thread
 * (core/scratch.ts).
 */
export function add(
  x: usize,
  xType: u32,
  y: usize,
  yType: u32,
  out: usize,
  outType: u32,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const sums = scratch + 2 * BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const left = asF32(x, xType, i, count, scratch);
    const right = asF32(y, yType, i, count, scratch + BUFFER);
    if (outType === Wide.F32) {
      addTo(out + (i << 2), left, right, count);
    } else {
      addTo(sums, left, right, count);
      narrow(sums, out, outType, i, count);
    }
  }
}

/** out[i] = x[i] + y[i] for exactly `count` elements. */
function addTo(out: usize, x: usize, y: usize, count: usize): void {
  for (const end = out + ((count & ~3) << 2); out < end; out += 16, x += 16, y += 16) {
    v128.store(out, f32x4.add(v128.load(x), v128.load(y)));
  }
  for (const end = out + ((count & 3) << 2); out < end; out += 4, x += 4, y += 4) {
    store<f32>(out, load<f32>(x) + load<f32>(y));
  }
}
