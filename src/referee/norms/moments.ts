/**
 * Means and variances of rows by Welford's method, as PyTorch 2.11 computes them
 * (aten/src/ATen/native/cuda/layer_norm_kernel.cu). ⊕, ⊖, ⊗ and ⊘ are f32 operations, each rounded once.
 */
import { WARP } from "../block-sums.js";
import { fma } from "../float32.js";
import { combineHalves, WelfordAccumulators } from "../reductions/accumulators.js";

const { fround } = Math;

/**
 * Welford accumulators that multiply by the rounded reciprocal of the count. An element x gives d = x ⊖ mean, mean = fma(d, 1 ⊘
 * count, mean) and squares = fma(d, x ⊖ mean, squares) with the new mean. Combining a and b, with counts n and m, gives r = 1 ⊘
 * (n + m), s = n ⊗ r, d = a.mean ⊖ b.mean, mean = fma(b.mean, m ⊗ r, s ⊗ a.mean) and squares = fma(s, (d ⊗ d) ⊗ m, a.squares ⊕
 * b.squares).
 */
class ReciprocalWelfordAccumulators extends WelfordAccumulators {
  override add(slot: number, input: number): void {
    const [means, squares, counts] = [this.means, this.squares, this.counts];
    const mean = means[slot] as number;
    const count = (counts[slot] as number) + 1;
    const delta = fround(input - mean);
    const newMean = fma(delta, fround(1 / count), mean);
    means[slot] = newMean;
    squares[slot] = fma(delta, fround(input - newMean), squares[slot] as number);
    counts[slot] = count;
  }

  override combine(slot: number, otherSlot: number): void {
    const [means, squares, counts] = [this.means, this.squares, this.counts];
    const [count, otherCount] = [counts[slot] as number, counts[otherSlot] as number];
    const total = count + otherCount;
    if (total === 0) return;
    const [mean, otherMean] = [means[slot] as number, means[otherSlot] as number];
    const reciprocal = fround(1 / total);
    const share = fround(count * reciprocal);
    const delta = fround(mean - otherMean);
    const deltaSquares = fround(fround(delta * delta) * otherCount);
    const sumOfSquares = fround((squares[slot] as number) + (squares[otherSlot] as number));
    means[slot] = fma(otherMean, fround(otherCount * reciprocal), fround(share * mean));
    squares[slot] = fma(share, deltaSquares, sumOfSquares);
    counts[slot] = total;
  }
}

/** The mean and variance of each row of a matrix. */
export interface Moments {
  readonly means: Float32Array;
  readonly variances: Float32Array;
}

/**
 * Moments of vectorized rows (multiples of 4 elements, up to 2^24). Thread t of 128 adds vectors t, t + 128, … of 4 elements. The
 * lanes of each warp are combined 16, 8, … apart, then the four warps 2 and 1 apart. The variance is squares ⊘ count.
 */
export function vectorizedMoments(x: Float32Array, rows: number, size: number): Moments {
  const threads = 128;
  const state = new ReciprocalWelfordAccumulators(threads);
  return computeMoments(state, threads, rows, (row) => {
    for (let i = 0; i < size; i++) state.add((i >> 2) % threads, x[row * size + i] as number);
  });
}

/**
 * Moments of other rows, by `WelfordAccumulators`. Thread t of 512 adds elements t, t + 512, …. The lanes of each warp are
 * combined 16, 8, … apart, then the 16 warps 8, 4, … apart. The variance is squares ⊘ count.
 */
export function stridedMoments(x: Float32Array, rows: number, size: number): Moments {
  const threads = 512;
  const state = new WelfordAccumulators(threads);
  return computeMoments(state, threads, rows, (row) =>
    state.addAll(x, row * size, (row + 1) * size, threads),
  );
}

/** The moments of each row, whose elements `addRow` adds to the accumulators of the threads. */
function computeMoments(
  state: WelfordAccumulators,
  threads: number,
  rows: number,
  addRow: (row: number) => void,
): Moments {
  const [means, variances] = [new Float32Array(rows), new Float32Array(rows)];
  for (let row = 0; row < rows; row++) {
    state.clear(0, threads);
    addRow(row);
    for (let warp = 0; warp < threads; warp += WARP) combineHalves(state, warp, WARP, 1);
    combineHalves(state, 0, threads / WARP, WARP);
    means[row] = state.means[0] as number;
    variances[row] = (state.squares[0] as number) / (state.counts[0] as number);
  }
  return { means, variances };
}
