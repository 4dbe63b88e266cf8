/**
 * Models of the gradients of layer norm and RMS norm as PyTorch 2.11 computes them on CUDA
 * (aten/src/ATen/native/cuda/layer_norm_kernel.cu). ⊖, ⊗ and ⊘ are f32 operations, each rounded once.
 */
import { blockSum, threadSums, treeSum } from "../block-sums.js";
import { Call, type Model } from "../call.js";
import { roundedValue, toFloat32 } from "../conversions.js";
import { fma } from "../float32.js";
import { NotModelled } from "../not-modelled.js";
import { MULTIPROCESSORS } from "../reductions/launch.js";
import { sum } from "../reductions/operators.js";
import type { Value } from "../value.js";
import { type NormRows, normRows, readWeight } from "./rows.js";

/** The operands of a norm's backward. RMS norm has no means. */
interface Operands extends NormRows {
  readonly call: Call;
  readonly gradOutput: Float32Array;
  readonly means: Float32Array | undefined;
  readonly rstds: Float32Array;
  readonly weight: Float32Array;
}

function readOperands(call: Call, hasMeans: boolean): Operands {
  const matrix = normRows(call);
  const { x, rows } = matrix;
  const { backend } = call;
  const mask = call.get("output_mask");
  if (!Array.isArray(mask) || !mask.every((each) => each === true))
    throw new NotModelled(`the gradients of some operands only: ${JSON.stringify(mask)}`);
  const weight = readWeight(call, "weight", matrix);
  const grad = call.tensor("grad_out");
  if (weight === undefined || grad.dtype !== x.dtype) throw new NotModelled(`a gradient of ${grad.dtype}`);
  const statistic = (name: string): Float32Array => {
    const value = call.tensor(name);
    const values = toFloat32(backend, value);
    if (value.dtype !== "F32" || values.length !== rows) throw new NotModelled(`${name} of ${value.dtype}`);
    return values;
  };
  return {
    ...matrix,
    call,
    gradOutput: toFloat32(backend, grad),
    means: hasMeans ? statistic("mean") : undefined,
    rstds: statistic("rstd"),
    weight,
  };
}

/** x ⊖ mean, or x if the norm has no means. */
function deviationAt({ values, means }: Operands, row: number, index: number): number {
  const x = values[index] as number;
  return means === undefined ? x : Math.fround(x - (means[row] as number));
}

/**
 * The gradient of the input. g is grad_out ⊗ weight, d is x ⊖ mean (x for RMS norm), and n is the number of elements of a row.
 * Each row has two sums: sum1 of g (0 for RMS norm), and sum2, to which each element contributes by fma(rstd, g ⊗ d, sum2).
 * Thread t of 128 adds vectors t, t + 128, … of 4 elements, of which the last may be shorter; then `blockSum`. The result is
 * (fma(grad_out, n ⊗ weight, -(sum2 ⊗ (rstd ⊗ d))) ⊖ sum1) ⊗ ((1 ⊘ n) ⊗ rstd), rounded once to the dtype.
 */
function inputGradient(operands: Operands): Value {
  const { call, x, rows, size, gradOutput, means, rstds, weight } = operands;
  const results = new Float32Array(rows * size);
  const [f32Terms, exactTerms] = [new Float32Array(size), new Float64Array(size)];
  const assignment = { threads: 128, width: 4 };
  const sumTerms = (terms: Float32Array | Float64Array): number =>
    blockSum(threadSums({ terms, start: 0, stride: 1, size }, assignment));
  for (let row = 0; row < rows; row++) {
    const rstd = rstds[row] as number;
    for (let i = 0; i < size; i++) {
      const index = row * size + i;
      const weightedGrad = Math.fround((gradOutput[index] as number) * (weight[i] as number));
      f32Terms[i] = weightedGrad;
      exactTerms[i] = rstd * Math.fround(weightedGrad * deviationAt(operands, row, index));
    }
    const total = means === undefined ? 0 : sumTerms(f32Terms);
    const correlation = sumTerms(exactTerms);
    const factor = Math.fround(Math.fround(1 / size) * rstd);
    for (let i = 0; i < size; i++) {
      const index = row * size + i;
      const projection = Math.fround(correlation * Math.fround(rstd * deviationAt(operands, row, index)));
      const scaledWeight = Math.fround(size * (weight[i] as number));
      const difference = fma(gradOutput[index] as number, scaledWeight, -projection);
      results[index] = Math.fround(difference - total) * factor;
    }
  }
  return roundedValue(call.backend, x.dtype, x.shape, results);
}

/** The number of consecutive rows that a thread adds at a time. */
const ROWS_PER_THREAD = 8;
/** The number of consecutive rows that a block adds at a time if there are several blocks. */
const ROWS_PER_BLOCK = 32;

/** Adds the term of element `index`, which lies in `row`, to the sum of its column. */
type AddTerm = (sum: number, row: number, index: number) => number;

/** For each of `count` owners, which are threads or blocks, the column sums of the owner's rows. The rows are added in order. */
function sumsByOwner(
  { rows, size }: Operands,
  count: number,
  ownerOf: (row: number) => number,
  add: AddTerm,
): Float32Array {
  const sums = new Float32Array(count * size);
  for (let row = 0; row < rows; row++) {
    const start = ownerOf(row) * size;
    for (let i = 0; i < size; i++) sums[start + i] = add(sums[start + i] as number, row, row * size + i);
  }
  return sums;
}

/**
 * The sum of the terms of each column, rounded once to the dtype.
 *
 * - Fewer than 64 rows are added in order.
 * - Otherwise T threads share a column: 8 for fewer than 128 rows, 16 for fewer than 256, else 32. Thread t adds 8 rows from row
 *   8 t on, then 8 rows from row 8 (t + T) on, and so on. `treeSum` adds the threads' sums.
 * - More than 65,536 rows of fewer than 66 * 32 elements are divided among B blocks: ceil(rows / 32), but at most 32,768 /
 *   ceil(size / 32). Block b adds 32 rows from row 32 b on, then 32 rows from row 32 (b + B) on, and so on. Its sums are rounded
 *   to the dtype, and `aten::sum` adds them.
 */
function columnSums(operands: Operands, add: AddTerm): Value {
  const { call, x, rows, size } = operands;
  const { backend } = call;
  if (rows > 65536 && Math.floor(size / 32) < MULTIPROCESSORS / 2) {
    const maxBlocks = Math.floor(32768 / Math.ceil(size / 32));
    const blocks = Math.min(maxBlocks, Math.ceil(rows / ROWS_PER_BLOCK));
    const ownerOf = (row: number): number => Math.floor(row / ROWS_PER_BLOCK) % blocks;
    const sums = roundedValue(backend, x.dtype, [blocks, size], sumsByOwner(operands, blocks, ownerOf, add));
    return sum(new Call(backend, ["self", "dim"], [sums, [0]], {}))[0] as Value;
  }
  const threads = rows < 64 ? 1 : rows < 128 ? 8 : rows < 256 ? 16 : 32;
  const ownerOf = (row: number): number => Math.floor(row / ROWS_PER_THREAD) % threads;
  const sums = sumsByOwner(operands, threads, ownerOf, add);
  const column = new Float32Array(threads);
  const totals = Float32Array.from({ length: size }, (_, i) => {
    for (let thread = 0; thread < threads; thread++) column[thread] = sums[thread * size + i] as number;
    return treeSum(column, 0, threads);
  });
  return roundedValue(backend, x.dtype, [size], totals);
}

/**
 * The gradient of the weight, a sum of `columnSums` to which each element contributes by fma(rstd, grad_out ⊗ d, sum). d is x ⊖
 * mean, or x for RMS norm.
 */
function weightGradient(operands: Operands): Value {
  const { gradOutput, rstds } = operands;
  return columnSums(operands, (total, row, index) =>
    fma(
      rstds[row] as number,
      Math.fround((gradOutput[index] as number) * deviationAt(operands, row, index)),
      total,
    ),
  );
}

/** The gradients of the input, the weight and the bias. The gradient of the bias is the sum of grad_out by `columnSums`. */
export const layerNormBackward: Model = (call) => {
  const operands = readOperands(call, true);
  readWeight(call, "bias", operands);
  const shape = call.integers("normalized_shape");
  const biasGradient = columnSums(
    operands,
    (total, _, index) => total + (operands.gradOutput[index] as number),
  );
  return [inputGradient(operands), { ...weightGradient(operands), shape }, { ...biasGradient, shape }];
};

/** The gradients of the input and the weight. */
export const rmsNormBackward: Model = (call) => {
  const operands = readOperands(call, false);
  return [inputGradient(operands), { ...weightGradient(operands), shape: call.integers("normalized_shape") }];
};
