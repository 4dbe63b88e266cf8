/**
 * Models of softmax and its gradient as PyTorch 2.11 computes them on CUDA (aten/src/ATen/native/cuda/SoftMax.cu and
 * PersistentSoftmax.cuh). The models assume that tensors begin at multiples of 16 bytes, as the caching allocator returns them.
 * ⊗, ⊘ and ⊖ are f32 operations, each rounded once.
 */
import type { Backend } from "../backends/backend.js";
import type { FileDType } from "../io/dtypes.js";
import { type Assignment, blockSum, sequentialBlockSum, threadSums, treeSum, WARP } from "./block-sums.js";
import type { Call, Model } from "./call.js";
import { roundedValue, roundThrough, toFloat32 } from "./conversions.js";
import { applyMath, fma, LOG2E, MIN_NORMAL } from "./float32.js";
import { NotModelled } from "./not-modelled.js";
import { type DimRows, itemSize, rowStart, rowsAlong, type Value } from "./value.js";

/** The shared memory of a block in bytes, cudaDeviceProp::sharedMemPerBlock. */
const SHARED_MEMORY = 49152;
const MAX_THREADS = 1024;
/** The size of a vector load in bytes. */
const VECTOR = 16;

/** The order in which a row is summed: the assignment of elements to threads, and the sum of the threads' sums. */
interface Order {
  assignment(row: number): Assignment;
  readonly combine: (sums: Float32Array) => number;
}

/** The smallest power of two that is at least x. */
const powerOfTwoAtLeast = (x: number): number => 2 ** Math.ceil(Math.log2(x));

const treeSumOfThreads = (sums: Float32Array): number => treeSum(sums, 0, sums.length);

/**
 * One warp sums a row; a shorter row uses fewer lanes. Lane l adds elements l, l + 32, …; then `treeSum` adds the sums of the
 * lanes.
 */
function warpOrder(size: number): Order {
  const assignment = { threads: Math.min(powerOfTwoAtLeast(size), WARP), width: 1 };
  return { assignment: () => assignment, combine: treeSumOfThreads };
}

/** The order for rows that are not contiguous. One thread sums a row; several threads sum a row if rows are long and few. */
function spatialOrder({ size, inner }: DimRows): Order {
  let threads = 1;
  const rows = Math.min(inner, MAX_THREADS);
  if (rows <= 64 && size >= 64) {
    while (rows * threads <= MAX_THREADS && threads <= size) threads *= 2;
    threads /= 2;
  }
  const assignment = { threads, width: 1 };
  return { assignment: () => assignment, combine: treeSumOfThreads };
}

/** Whether a block with this many threads keeps a row in shared memory. */
function isShared(size: number, bytes: number, threads: number): boolean {
  return size < Math.floor((SHARED_MEMORY - (threads / WARP) * 4) / bytes) && size % (VECTOR / bytes) === 0;
}

/**
 * Assigns single elements before the first aligned address, then aligned vectors of 16 bytes, then single elements at the end.
 */
function unalignedAssignment(size: number, bytes: number, threads: number): (row: number) => Assignment {
  return (row) => ({
    threads,
    width: VECTOR / bytes,
    shift: ((row * size * bytes) % VECTOR) / bytes,
    hasTail: true,
  });
}

function forwardOrder(rows: DimRows, bytes: number, toFloat: boolean): Order {
  const { size } = rows;
  if (rows.inner > 1) return spatialOrder(rows);
  if (size <= (toFloat ? 1024 : 2048)) return warpOrder(size);
  const threads = MAX_THREADS;
  if (!toFloat && size <= 9 * threads)
    return { assignment: () => ({ threads, width: 1 }), combine: blockSum };
  if (isShared(size, bytes, threads))
    return { assignment: () => ({ threads, width: VECTOR / bytes }), combine: blockSum };
  return { assignment: unalignedAssignment(size, bytes, threads), combine: blockSum };
}

function backwardOrder(rows: DimRows, bytes: number): Order {
  const { size } = rows;
  if (rows.inner > 1) return spatialOrder(rows);
  if (size <= 1024) return warpOrder(size);
  const width = VECTOR / bytes;
  const half = Math.floor(Math.min(Math.floor(size / width), MAX_THREADS) / 2);
  const threads = Math.max(powerOfTwoAtLeast(half), WARP);
  if (isShared(size, bytes, threads)) return { assignment: () => ({ threads, width }), combine: blockSum };
  return { assignment: unalignedAssignment(size, bytes, threads), combine: sequentialBlockSum };
}

/** The sum of each row of terms. */
function rowSums(terms: Float32Array | Float64Array, rows: DimRows, order: Order): Float32Array {
  const { outer, size, inner } = rows;
  const sums = new Float32Array(outer * inner);
  for (let row = 0; row < sums.length; row++) {
    const start = rowStart(rows, row);
    sums[row] = order.combine(threadSums({ terms, start, stride: inner, size }, order.assignment(row)));
  }
  return sums;
}

/** The largest element of each row, ignoring NaN. */
function rowMaxima(x: Float32Array, { outer, size, inner }: DimRows): Float32Array {
  const maxima = new Float32Array(outer * inner).fill(Number.NEGATIVE_INFINITY);
  for (let i = 0; i < x.length; i++) {
    const row = Math.floor(i / (size * inner)) * inner + (i % inner);
    if ((x[i] as number) > (maxima[row] as number)) maxima[row] = x[i] as number;
  }
  return maxima;
}

/** Applies a formula to each element, the index of its row and its index in the row. */
function mapRows(
  x: Float32Array,
  { size, inner }: DimRows,
  formula: (value: number, row: number, index: number) => number,
): Float32Array {
  return x.map((value, i) => formula(value, Math.floor(i / (size * inner)) * inner + (i % inner), i));
}

/** log2 e - `LOG2E`, rounded to f32. */
const LOG2E_REST = Math.fround(1.9259630335e-8);

/**
 * expf(x) before its last rounding. expf is ex2(g) ⊗ 2^n, and this product is exact unless it is subnormal, where n is -126. So
 * the exact product differs from `powers`, the values of expf, in subnormal elements only.
 */
function exactExponentials(
  backend: Backend,
  x: Float32Array,
  powers: Float32Array,
): Float32Array | Float64Array {
  const subnormalIndices: number[] = [];
  for (let i = 0; i < powers.length; i++) if ((powers[i] as number) < MIN_NORMAL) subnormalIndices.push(i);
  if (subnormalIndices.length === 0) return powers;
  const exponents = Float32Array.from(subnormalIndices, (i) =>
    fma(x[i] as number, LOG2E_REST, fma(x[i] as number, LOG2E, 126)),
  );
  const exact = Float64Array.from(powers);
  for (const [k, factor] of applyMath(backend, "ex2.approx.ftz.f32", exponents).entries())
    exact[subnormalIndices[k] as number] = factor * MIN_NORMAL;
  return exact;
}

/**
 * Softmax or its logarithm. With d = x ⊖ max, the result is expf(d) ⊘ sum, or d ⊖ logf(sum), rounded once to the dtype. A thread
 * adds an element by sum = fma(2^n, ex2(g), sum), where ex2(g) ⊗ 2^n is expf(d); only softmax (not its logarithm) by one warp
 * adds expf(d).
 *
 * - Contiguous rows of up to 2048 elements (1024 from f16 to f32): lane l of one warp adds elements l, l + 32, …; then `treeSum`.
 * - Up to 9216 elements, not from f16 to f32: thread t of 1024 adds elements t, t + 1024, …; then `blockSum`.
 * - Longer rows that fit in shared memory and are multiples of 16 bytes: thread t of 1024 adds vectors t, t + 1024, … of 16
 *   bytes; then `blockSum`.
 * - Other contiguous rows: the same, but the elements before the first aligned vector are added first, and elements at the end
 *   that are too few for a vector of every thread are assigned one by one.
 * - Rows along another dimension than the last: one thread adds a row in order. If `inner` is at most 64 and rows have 64
 *   elements or more, T threads share a row, as many as 1024 threads allow: thread t adds elements t, t + T, …; then `treeSum`.
 */
export function softmax(isLog: boolean): Model {
  return (call) => {
    const x = call.tensor("self");
    const toFloat = call.boolean("half_to_float", false);
    if (toFloat && x.dtype !== "F16") throw new NotModelled(`half_to_float of ${x.dtype}`);
    const { backend } = call;
    const values = toFloat32(backend, x);
    const rows = rowsAlong(x.shape, call.dimension("dim", x.shape));
    const order = forwardOrder(rows, itemSize(x.dtype), toFloat);
    const maxima = rowMaxima(values, rows);
    const distances = mapRows(values, rows, (value, row) => value - (maxima[row] as number));
    const powers = applyMath(backend, "expf", distances);
    const isOneWarp = rows.inner === 1 && rows.size <= (toFloat ? 1024 : 2048);
    const terms = isOneWarp && !isLog ? powers : exactExponentials(backend, distances, powers);
    const sums = rowSums(terms, rows, order);
    const logs = isLog ? applyMath(backend, "logf", sums) : sums;
    const results = isLog
      ? mapRows(distances, rows, (value, row) => value - (logs[row] as number))
      : mapRows(powers, rows, (value, row) => value / (sums[row] as number));
    return [roundedValue(backend, toFloat ? "F32" : x.dtype, x.shape, results)];
  };
}

/**
 * `grad_output` and `output`, which have one dtype, and the dtype of the input. The input has the same dtype, or f16 if the two
 * tensors are f32.
 */
function gradientOperands(call: Call): readonly [Value, Value, FileDType] {
  const [grad, output] = [call.tensor("grad_output"), call.tensor("output")];
  const dtype = call.dtype("input_dtype") ?? grad.dtype;
  const isSupported = grad.dtype === dtype || (grad.dtype === "F32" && dtype === "F16");
  if (!isSupported || output.dtype !== grad.dtype)
    throw new NotModelled(`${grad.dtype} and ${output.dtype} with an input of ${dtype}`);
  return [grad, output, dtype];
}

/**
 * The gradient of softmax is fma(-output, sum of g, g) with g = grad_output ⊗ output, rounded to their dtype. The gradient of its
 * logarithm is fma(-expf(output), sum of g, g) with g = grad_output. Both are rounded once to the dtype.
 *
 * - Contiguous rows of up to 1024 elements are summed by one warp, as in `softmax`.
 * - Longer contiguous rows are summed by a block of 32 to 512 threads: the smallest power of two that is at least half of the
 *   number of vectors of 16 bytes. Rows that fit in shared memory and are multiples of 16 bytes are assigned as vectors; then
 *   `blockSum`. Other rows are assigned as in `softmax`; then `sequentialBlockSum`.
 * - Rows along another dimension than the last: as in `softmax`.
 */
export function softmaxBackward(isLog: boolean): Model {
  return (call) => {
    const [grad, output, dtype] = gradientOperands(call);
    const { backend } = call;
    const [gradOutput, outputs] = [toFloat32(backend, grad), toFloat32(backend, output)];
    const rows = rowsAlong(output.shape, call.dimension("dim", output.shape));
    const order = backwardOrder(rows, itemSize(grad.dtype));
    const terms = isLog
      ? gradOutput
      : roundThrough(
          backend,
          grad.dtype,
          gradOutput.map((each, i) => each * (outputs[i] as number)),
        );
    const factors = isLog ? applyMath(backend, "expf", outputs) : outputs;
    const sums = rowSums(terms, rows, order);
    const results = mapRows(terms, rows, (term, row, i) =>
      fma(-(factors[i] as number), sums[row] as number, term),
    );
    return [roundedValue(backend, dtype, grad.shape, results)];
  };
}
