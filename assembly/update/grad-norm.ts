// The 2-norm of all gradients, and the factor that clips the gradients to a maximum norm (numerics.md §9.3). A tensor
// is divided into pieces of 4096 elements. The tensor's sum of squares is the sum of its pieces' sums. The norm is the
// square root of the sum over all tensors. All sums have the order of core/reduce.ts.
import { fill, multiply } from "../core/chunk";
import { addTerms, foldLanes } from "../core/reduce";
import { BUFFER, CHUNK } from "../core/scratch";
import { widen } from "../core/wide";

/** The number of elements per piece. */
const PIECE: usize = 4096;

/** The arguments of `squareSums`. */
@unmanaged
class SquareSumsTask {
  x: usize;
  type: u32;
  count: usize;
  sums: usize;
}

/** Writes the sum of squares of each of the pieces [begin, end) of a tensor with `count` elements, as f32. */
export function squareSums(task: SquareSumsTask, scratch: usize, begin: usize, end: usize): void {
  const lanes = scratch + BUFFER;
  for (let piece = begin; piece < end; piece++) {
    fill(lanes, 0, 32);
    const last = min(task.count, (piece + 1) * PIECE);
    for (let i = piece * PIECE; i < last; i += CHUNK) {
      const chunkLength = min(CHUNK, last - i);
      widen(task.x, task.type, i, chunkLength, scratch);
      multiply(scratch, scratch, chunkLength);
      addTerms(lanes, scratch, chunkLength);
    }
    store<f32>(task.sums + (piece << 2), foldLanes(lanes));
  }
}

/** The arguments of `clipFactor`. */
@unmanaged
class ClipFactorTask {
  sums: usize;
  count: usize;
  maxNorm: f32;
  norm: usize;
  factor: usize;
}

/**
 * Writes the norm and the clip factor, min(1, maxNorm / (norm + 1e-6)). `sums` holds the sums of squares of `count`
 * tensors. NaN propagates.
 */
export function clipFactor(task: ClipFactorTask, scratch: usize): void {
  fill(scratch, 0, 32);
  addTerms(scratch, task.sums, task.count);
  const root = sqrt(foldLanes(scratch));
  const ratio = task.maxNorm / (root + <f32>1e-6);
  store<f32>(task.norm, root);
  store<f32>(task.factor, ratio > 1 ? 1 : ratio);
}
