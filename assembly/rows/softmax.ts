// Softmax over the last dimension of [..., R, C], where C is `columns`, and its gradient, in f32 (numerics.md §7.9).
// Without the causal mask a row has C elements. Under it, row i of a matrix of R rows has only its first i + 1 + C - R
// elements; the masked elements are not read, and their y and dx are 0. Every operation is rounded, in the order
// written:
//
//   z = scale x            maximum = max(z) + 0, NaN ignored            y = e^(z - maximum) / sum(e^(z - maximum))
//   dx_j = scale (y_j (g_j - sum(y g)))
//
// Sums have the order of core/reduce.ts. `period` is R under the causal mask, else 0.
import { addScalar, divideScalar, exponentials, fill, multiply, multiplyScalar } from "../core/chunk";
import { addTerms, foldLanes, maximumOf } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, wideBytes, widen } from "../core/wide";

/**
 * The number of exponentials of a row that are kept in scratch. The exponentials of later elements are computed again.
 */
const MAX_CACHED: usize = 1 << 16;

/** The arguments of `softmax`. */
@unmanaged
class SoftmaxTask {
  x: usize;
  type: u32;
  out: usize;
  outType: u32;
  columns: usize;
  period: usize;
  scale: f32;
}

/** Computes rows [begin, end) of out. `scratch` is two buffers of the calling thread (core/scratch.ts) followed by 2^18 bytes. */
export function softmax(task: SoftmaxTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const lanes = scratch + BUFFER;
  const cached = lanes + BUFFER;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    const length = lengthOf(row, columns, task.period);
    let top: f32 = -Infinity;
    for (let i: usize = 0; i < length; i += CHUNK) {
      const count = min(CHUNK, length - i);
      widenScaled(task, first + i, count, scratch);
      top = maximumOf(scratch, count, top);
    }
    top += 0;
    fill(lanes, 0, 32);
    for (let i: usize = 0; i < length; i += CHUNK) {
      const count = min(CHUNK, length - i);
      const powers = i < MAX_CACHED ? cached + (i << 2) : scratch;
      widenScaled(task, first + i, count, powers);
      exponentials(powers, top, count);
      addTerms(lanes, powers, count);
    }
    const sum = foldLanes(lanes);
    for (let i: usize = 0; i < length; i += CHUNK) {
      const count = min(CHUNK, length - i);
      const powers = i < MAX_CACHED ? cached + (i << 2) : scratch;
      if (i >= MAX_CACHED) {
        widenScaled(task, first + i, count, powers);
        exponentials(powers, top, count);
      }
      divideScalar(powers, sum, count);
      narrow(powers, task.out, task.outType, first + i, count);
    }
    clearRest(task.out, task.outType, first, length, columns);
  }
}

/** The arguments of `softmaxBackward`. */
@unmanaged
class SoftmaxBackwardTask {
  grad: usize;
  gradType: u32;
  y: usize;
  yType: u32;
  dx: usize;
  dxType: u32;
  columns: usize;
  period: usize;
  scale: f32;
}

/**
 * Computes rows [begin, end) of dx. `y` is the output of `softmax` and `grad` its gradient. `scratch` is three buffers
 * of the calling thread.
 */
export function softmaxBackward(task: SoftmaxBackwardTask, scratch: usize, begin: usize, end: usize): void {
  const columns = task.columns;
  const shares = scratch + BUFFER;
  const lanes = shares + BUFFER;
  for (let row = begin; row < end; row++) {
    const first = row * columns;
    const length = lengthOf(row, columns, task.period);
    fill(lanes, 0, 32);
    for (let i: usize = 0; i < length; i += CHUNK) {
      const count = min(CHUNK, length - i);
      widen(task.grad, task.gradType, first + i, count, scratch);
      widen(task.y, task.yType, first + i, count, shares);
      multiply(scratch, shares, count);
      addTerms(lanes, scratch, count);
    }
    const sum = foldLanes(lanes);
    for (let i: usize = 0; i < length; i += CHUNK) {
      const count = min(CHUNK, length - i);
      widen(task.grad, task.gradType, first + i, count, scratch);
      widen(task.y, task.yType, first + i, count, shares);
      addScalar(scratch, -sum, count);
      multiply(scratch, shares, count);
      multiplyScalar(scratch, task.scale, count);
      narrow(scratch, task.dx, task.dxType, first + i, count);
    }
    clearRest(task.dx, task.dxType, first, length, columns);
  }
}

/** Writes z = scale x of elements [first, first + count). */
function widenScaled(task: SoftmaxTask, first: usize, count: usize, z: usize): void {
  widen(task.x, task.type, first, count, z);
  multiplyScalar(z, task.scale, count);
}

/** The number of elements of a row that are not masked. */
function lengthOf(row: usize, columns: usize, period: usize): usize {
  if (period === 0) return columns;
  const reach = (row % period) + 1 + columns;
  return reach > period ? reach - period : 0;
}

/** Writes zeros to a row's elements [length, columns). */
function clearRest(out: usize, type: u32, first: usize, length: usize, columns: usize): void {
  const bytes = wideBytes(type);
  memory.fill(out + (first + length) * bytes, 0, (columns - length) * bytes);
}
