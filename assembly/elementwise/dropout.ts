// Dropout of elements (docs/numerics.md 7.14).
import { Wide } from "../contract";
import { Draws, fillRandom16 } from "../core/random";
import { BUFFER, CHUNK } from "../core/scratch";
import { asF32, narrow } from "../core/wide";

/** The arguments of `dropout`. */
@unmanaged
class DropoutTask {
  draws: Draws;
  x: usize;
  xType: u32;
  out: usize;
  outType: u32;
  threshold: u32;
  keep: f32;
}

/**
 * out[i] = x[i] * keep for i in [begin, end), or 0 if the 16 random bits of element i are below `threshold`. `begin` is a
 * multiple of 8. `scratch` has two buffers of the calling thread (core/scratch.ts).
 */
export function dropout(task: DropoutTask, scratch: usize, begin: usize, end: usize): void {
  const bits = scratch + BUFFER;
  const out = task.out;
  const outType = task.outType;
  for (let i = begin; i < end; i += CHUNK) {
    const count = min(CHUNK, end - i);
    const values = asF32(task.x, task.xType, i, count, scratch);
    fillRandom16(task.draws, bits, <u32>i, <i32>count);
    if (outType === Wide.F32) {
      dropoutChunk(task, out + (i << 2), values, bits, count);
    } else {
      dropoutChunk(task, scratch, values, bits, count);
      narrow(scratch, out, outType, i, count);
    }
  }
}

/** Computes exactly `count` elements from their values and random bits (u16). out may be `values`. */
function dropoutChunk(task: DropoutTask, out: usize, values: usize, bits: usize, count: usize): void {
  const keep = task.keep;
  const threshold = task.threshold;
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
