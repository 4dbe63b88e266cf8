/**
 * Models of layer norm and RMS norm as PyTorch 2.11 computes them on CUDA (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
 * The models assume that tensors begin at multiples of 16 bytes, as the caching allocator returns them. ⊕, ⊖, ⊗ and ⊘ are f32
 * operations, each rounded once.
 */
import { blockSum, threadSums } from "../block-sums.js";
import type { Model } from "../call.js";
import { roundedValue } from "../conversions.js";
import { applyMath, fma } from "../float32.js";
import { stridedMoments, vectorizedMoments } from "./moments.js";
import { type NormRows, normRows, readWeight } from "./rows.js";

/** Applies a formula to each element, its row and its column. */
function mapElementsOfRows(
  { values, rows, size }: NormRows,
  formula: (x: number, row: number, column: number) => number,
): Float32Array {
  const results = new Float32Array(values.length);
  for (let row = 0, i = 0; row < rows; row++)
    for (let column = 0; column < size; column++, i++) results[i] = formula(values[i] as number, row, column);
  return results;
}

/**
 * Layer norm. moments.ts computes means and variances; rstd is rsqrtf(variance ⊕ eps). With d = x ⊖ mean and t = d ⊗ rstd, the
 * result is, rounded once to the dtype:
 *
 * - fma(weight, t, bias) with a weight and a bias
 * - weight ⊗ t with a weight only
 * - fma(rstd, d, bias) with a bias only
 * - t with neither
 *
 * If rows are not vectorized, an absent bias is +0, and the formulas with a bias hold.
 */
export const layerNorm: Model = (call) => {
  const matrix = normRows(call);
  const { x, values, rows, size, statShape, isVectorized } = matrix;
  const { backend } = call;
  const [weight, bias] = [readWeight(call, "weight", matrix), readWeight(call, "bias", matrix)];
  const eps = Math.fround(call.number("eps"));
  const { means, variances } = (isVectorized ? vectorizedMoments : stridedMoments)(values, rows, size);
  const rstds = applyMath(
    backend,
    "rsqrtf",
    variances.map((variance) => variance + eps),
  );
  const results = mapElementsOfRows(matrix, (value, row, column) => {
    const rstd = rstds[row] as number;
    const distance = Math.fround(value - (means[row] as number));
    const shift = bias === undefined ? 0 : (bias[column] as number);
    const hasShift = bias !== undefined || !isVectorized;
    if (weight === undefined) return hasShift ? fma(rstd, distance, shift) : distance * rstd;
    const normalized = Math.fround(distance * rstd);
    const factor = weight[column] as number;
    return hasShift ? fma(factor, normalized, shift) : factor * normalized;
  });
  return [
    roundedValue(backend, x.dtype, x.shape, results),
    roundedValue(backend, "F32", statShape, means),
    roundedValue(backend, "F32", statShape, rstds),
  ];
};

/** The mean square of each row. */
function meanSquares({ values, rows, size, isVectorized }: NormRows): Float32Array {
  if (!isVectorized) {
    const { means, variances } = stridedMoments(values, rows, size);
    return variances.map((variance, row) => fma(means[row] as number, means[row] as number, variance));
  }
  const terms = new Float64Array(values.length);
  for (let i = 0; i < values.length; i++) terms[i] = (values[i] as number) ** 2;
  return Float32Array.from({ length: rows }, (_, row) => {
    const sums = threadSums({ terms, start: row * size, stride: 1, size }, { threads: 128, width: 4 });
    return blockSum(sums) / size;
  });
}

/**
 * RMS norm. rstd is rsqrtf(mean square ⊕ eps), and the result is x ⊗ rstd ⊗ weight, rounded once to the dtype.
 *
 * - Vectorized rows (multiples of 4 elements, up to 2^24): thread t of 128 adds the squares of vectors t, t + 128, … of 4
 *   elements, each by an fma. `blockSum` adds the threads' sums, and the mean square is the total ⊘ size.
 * - Other rows: the mean square is fma(mean, mean, variance), with mean and variance by `stridedMoments`.
 */
export const rmsNorm: Model = (call) => {
  const matrix = normRows(call);
  const { x, statShape } = matrix;
  const { backend } = call;
  const weight = readWeight(call, "weight", matrix);
  const eps = Math.fround(call.number("eps", 2 ** -23));
  const squares = meanSquares(matrix);
  const rstds = applyMath(
    backend,
    "rsqrtf",
    squares.map((square) => square + eps),
  );
  const results = mapElementsOfRows(matrix, (value, row, column) => {
    const normalized = Math.fround(value * (rstds[row] as number));
    return weight === undefined ? normalized : normalized * (weight[column] as number);
  });
  return [roundedValue(backend, x.dtype, x.shape, results), roundedValue(backend, "F32", statShape, rstds)];
};
