// Dropout of elements (docs/numerics.md 7.14).
import { Wide } from "../contract";
import { fillRandom16 } from "../core/random";
import { BUFFER, CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/**
 * out[i] = x[i] * keep for i in [begin, end), or 0 if the 16 random bits of element i are below `threshold`. `begin` is a
 * multiple of 8. `scratch` has two buffers of the calling thread (core/scratch.ts).
 */
export function dropout(
  x: usize,
  xType: u32,
  out: usize,
  outType: u32,
  threshold: u32,
  keep: f32,
  seedLo: u32,
  seedHi: u32,
  offsetLo: u32,
  offsetHi: u32,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const bits = scratch + BUFFER;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const values = asF32(x, xType, i, count, scratch);
    fillRandom16(bits, <u32>i, <i32>count, seedLo, seedHi, offsetLo, offsetHi, 0);
    if (outType === Wide.F32) {
      dropoutChunk(out + (i << 2), values, bits, threshold, keep, count);
    } else {
      dropoutChunk(scratch, values, bits, threshold, keep, count);
      narrow(scratch, out, outType, i, count);
    }
  }
}

/** Computes exactly `count` elements from their values and random bits (u16). out may be `values`. */
function dropoutChunk(out: usize, values: usize, bits: usize, threshold: u32, keep: f32, count: usize): void {
  const keepFactors = f32x4.splat(keep);
  const thresholds = i32x4.splat(threshold);
  for (const end = out + ((count & ~3) << 2); out < end; out += 16, values += 16, bits += 8) {
    const isKept = i32x4.ge_u(v128.load16x4_u(bits), thresholds);
    v128.store(out, v128.and(f32x4.mul(v128.load(values), keepFactors), isKept));
  }
  for (const end = out + ((count & 3) << 2); out < end; out += 4, values += 4, bits += 2) {
    store<f32>(out, <u32>load<u16>(bits) < threshold ? 0 : load<f32>(values) * keep);
  }
}
