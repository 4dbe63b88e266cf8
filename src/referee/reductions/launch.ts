/** The launch that PyTorch chooses for a reduction: `setReduceConfig` of aten/src/ATen/native/cuda/Reduce.cuh. */
import { WARP } from "../block-sums.js";
import type { IterationDim, ReductionGeometry } from "./geometry.js";

/** The multiprocessors of an H200, and the maximum number of resident threads of each. */
export const MULTIPROCESSORS = 132;
const THREADS_PER_MULTIPROCESSOR = 2048;
const MAX_BLOCK = 512;

/**
 * The number of accumulators of a thread: `strided` if the thread reads single inputs, `vector` if it reads vectors of adjacent
 * inputs.
 */
export interface Unrolling {
  readonly strided: number;
  readonly vector: number;
}

/**
 * The threads that share the inputs of one output: `width` by `height` threads in each of `blocks` blocks. Thread (x, y) of
 * block c has the number x + width * (y + height * c).
 */
export interface Launch {
  readonly width: number;
  readonly height: number;
  readonly blocks: number;
  /** The number of accumulators of a thread. */
  readonly accumulators: number;
  /** Whether a thread reads aligned vectors of adjacent inputs, with an accumulator for each element of a vector. */
  readonly isVectorized: boolean;
}

const product = (dims: readonly IterationDim[]) => dims.reduce((count, { size }) => count * size, 1);

/** The largest power of two that is at most `n` and at most `limit`. `limit` is a power of two. */
function powerOfTwo(n: number, limit: number): number {
  return n < limit ? 2 ** Math.max(0, Math.floor(Math.log2(n))) : limit;
}

/**
 * The number of adjacent outputs of a thread: the largest of 4, 2 and 1 that divides the size of the adjacent dimension and all
 * other strides.
 */
function outputVector({ reducedDims, keptDims }: ReductionGeometry): number {
  const [adjacent, ...outerDims] = keptDims as [IterationDim, ...IterationDim[]];
  const multiples = [adjacent.size, ...[...reducedDims, ...outerDims].map(({ input }) => input)];
  return [4, 2].find((size) => multiples.every((each) => each % size === 0)) ?? 1;
}

/** The launch of a reduction on an H200. */
export function reductionLaunch(geometry: ReductionGeometry, unrolling: Unrolling): Launch {
  const { reducedDims, keptDims } = geometry;
  const [inputs, outputs] = [product(reducedDims), product(keptDims)];
  const [inner, outer] = [reducedDims[0], keptDims[0]];
  const isAlongInputs = outer === undefined || (inner !== undefined && inner.input < outer.input);
  const isVectorized = isAlongInputs && inner?.input === 1 && inputs >= 128 && reducedDims.length === 1;
  const outputSize = !isAlongInputs && outer.input === 1 ? outputVector(geometry) : 1;

  let [x, y] = isAlongInputs ? [inputs, outputs] : [outputs, inputs];
  if (isVectorized) x = Math.floor(x / unrolling.vector);
  else x = Math.floor(x / outputSize);
  const limit = MAX_BLOCK / outputSize;
  [x, y] = [powerOfTwo(x, limit), powerOfTwo(y, limit)];
  const blockHeight = Math.min(y, limit / Math.min(x, WARP));
  const blockWidth = Math.min(x, limit / blockHeight);

  const width = isAlongInputs ? blockWidth : 1;
  const splitsRows = Math.ceil(inputs / width) >= Math.min(blockHeight * 16, 256);
  const height = splitsRows ? blockHeight : 1;
  const outputsPerBlock = (isAlongInputs ? 1 : blockWidth) * (splitsRows ? 1 : blockHeight);
  const grid = Math.ceil(Math.floor(outputs / outputSize) / outputsPerBlock);
  const target = MULTIPROCESSORS * Math.floor(THREADS_PER_MULTIPROCESSOR / (blockWidth * blockHeight));
  const inputsPerThread = Math.ceil(inputs / (width * height));
  const blocks =
    splitsRows && inputsPerThread >= 256 && grid <= target
      ? Math.max(
          Math.min(Math.ceil(target / grid), Math.ceil(inputsPerThread / 16)),
          Math.ceil(inputsPerThread / 256),
        )
      : 1;
  const accumulators = isVectorized ? unrolling.vector : unrolling.strided;
  return { width, height, blocks, accumulators, isVectorized };
}
