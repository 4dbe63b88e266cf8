/**
 * The order in which PyTorch's CUDA reductions add (`ReduceOp` of aten/src/ATen/native/cuda/Reduce.cuh), for any accumulator.
 *
 * The T = width * height * blocks threads of `Launch` share the inputs of one output. Each thread has V accumulators.
 * - Strided: accumulator i of thread t adds inputs t + T * (i + V * k), k = 0, 1, …, in this order.
 * - Vectorized: the first h inputs precede the first address that is a multiple of V elements. They are added first, one each to
 *   accumulator 0 of threads V - h to V - 1. The inputs from that address on are vectors of V elements: accumulator i of thread t
 *   adds element i of vectors t + T * k, k = 0, 1, …. The last inputs, fewer than V, are added last, one each to accumulator 0 of
 *   threads 0, 1, ….
 * - Accumulators 1 to V - 1 of a thread are combined into its accumulator 0, in this order.
 * - The threads of a block are combined along x, then along y: thread t with thread t + half, for half = size / 2, size / 4, …,
 *   1.
 * - If there are several blocks, the last one to finish combines their results. Its thread t combines the identity with the
 *   results of blocks t, t + width * height, …, in this order. Then its threads are combined along y, then along x.
 *
 * The model assumes that the input is contiguous and begins at a multiple of 16 bytes.
 */
import { type Accumulators, combineHalves } from "./accumulators.js";
import type { IterationDim, ReductionGeometry } from "./geometry.js";
import type { Launch } from "./launch.js";

/** The number of slots that the accumulators of a launch need. */
export function slotCount({ width, height, blocks, accumulators }: Launch): number {
  return width * height * (blocks * accumulators + 1);
}

/**
 * Reduces the inputs of one output. Returns the slot with the result. The first input is `misalignment` elements after a vector's
 * start.
 */
function reduceOne(state: Accumulators, launch: Launch, inputs: Float32Array, misalignment: number): number {
  const { width, height, blocks, accumulators, isVectorized } = launch;
  const threads = width * height;
  const allThreads = threads * blocks;
  const slots = allThreads * accumulators;
  state.clear(0, slots);
  // Vectorized: slot thread * accumulators + i. Strided: slot thread + threads of all blocks * i. `addAll` then adds in input
  // order.
  const stride = isVectorized ? accumulators : 1;
  if (isVectorized) {
    const head = misalignment === 0 ? 0 : accumulators - misalignment;
    for (let i = 0; i < head; i++) state.add((misalignment + i) * stride, inputs[i] as number);
    const tail = inputs.length - ((inputs.length - head) % accumulators);
    state.addAll(inputs, head, tail, slots);
    for (let i = tail; i < inputs.length; i++) state.add((i - tail) * stride, inputs[i] as number);
  } else state.addAll(inputs, 0, inputs.length, slots);

  const accumulatorStride = isVectorized ? 1 : allThreads;
  for (let thread = 0; thread < allThreads; thread++)
    for (let i = 1; i < accumulators; i++)
      state.combine(thread * stride, thread * stride + i * accumulatorStride);
  for (let row = 0; row < height * blocks; row++) combineHalves(state, row * width * stride, width, stride);
  for (let block = 0; block < blocks; block++)
    combineHalves(state, block * threads * stride, height, width * stride);
  if (blocks === 1) return 0;

  state.clear(slots, slots + threads);
  for (let block = 0; block < blocks; block++)
    state.combine(slots + (block % threads), block * threads * stride);
  for (let x = 0; x < width; x++) combineHalves(state, slots + x, height, width);
  combineHalves(state, slots, width, 1);
  return slots;
}

/** Calls `body` with the offsets in the input and in the output for each index of `dims`, the first dimension innermost. */
function forEachIndex(dims: readonly IterationDim[], body: (input: number, output: number) => void): void {
  const visit = (depth: number, input: number, output: number): void => {
    const dim = dims[depth];
    if (dim === undefined) body(input, output);
    else for (let i = 0; i < dim.size; i++) visit(depth - 1, input + i * dim.input, output + i * dim.output);
  };
  visit(dims.length - 1, 0, 0);
}

/** Reduces all outputs. Calls `store` with the slot of each result and with its offset in the output. */
export function reduceAll(
  state: Accumulators,
  launch: Launch,
  { reducedDims, keptDims }: ReductionGeometry,
  x: Float32Array,
  store: (slot: number, output: number) => void,
): void {
  const offsets: number[] = [];
  forEachIndex(reducedDims, (input) => offsets.push(input));
  const inputs = new Float32Array(offsets.length);
  const isAdjacent = reducedDims.length === 1 && reducedDims[0]?.input === 1;
  forEachIndex(keptDims, (base, output) => {
    if (!isAdjacent)
      for (let i = 0; i < inputs.length; i++) inputs[i] = x[base + (offsets[i] as number)] as number;
    const view = isAdjacent ? x.subarray(base, base + inputs.length) : inputs;
    store(reduceOne(state, launch, view, base % launch.accumulators), output);
  });
}
