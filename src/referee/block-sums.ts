/**
 * Sums of rows by the threads of a block: the elements that each thread adds, and the order in which the threads' sums are added.
 */
import { fma } from "./float32.js";

/** The assignment of a row's elements to the threads of a block: vectors are assigned to the threads in turn. */
export interface Assignment {
  readonly threads: number;
  /** The number of elements of a vector, which one thread loads. */
  readonly width: number;
  /**
   * The number of elements between the last aligned address and the row. If it is not 0, each thread t, from thread `shift` on,
   * first adds element t - shift.
   */
  readonly shift?: number;
  /** Whether the last elements are assigned one by one if they are too few for one vector per thread. */
  readonly hasTail?: true;
}

/** A row of terms: `size` numbers, `stride` apart. f64 terms are exact products of two f32 numbers. */
export interface Row {
  readonly terms: Float32Array | Float64Array;
  readonly start: number;
  readonly stride: number;
  readonly size: number;
}

/** Each thread's sum of its elements in ascending order, beginning with +0, each addition rounded to f32. */
export function threadSums({ terms, start, stride, size }: Row, assignment: Assignment): Float32Array {
  const { threads, width, shift = 0, hasTail } = assignment;
  const sums = new Float32Array(threads);
  const isExact = terms instanceof Float64Array;
  const addElement = (thread: number, index: number): void => {
    const term = terms[start + index * stride] as number;
    const sum = sums[thread] as number;
    // the f64 sum with an f64 term may be inexact, and a second rounding to f32 may then be wrong
    sums[thread] = isExact ? fma(term, 1, sum) : sum + term;
  };
  let index = 0;
  if (shift > 0)
    for (let thread = shift; thread < threads && index < size; thread++) addElement(thread, index++);
  const remainder = size - index;
  const vectorEnd = index + (hasTail ? remainder - (remainder % (width * threads)) : remainder);
  for (let thread = 0; index < vectorEnd; thread = thread + 1 === threads ? 0 : thread + 1)
    for (let i = 0; i < width && index < vectorEnd; i++) addElement(thread, index++);
  for (let thread = 0; index < size; thread = thread + 1 === threads ? 0 : thread + 1)
    addElement(thread, index++);
  return sums;
}

/**
 * The sum of `width` numbers from `start` on, where `width` is a power of two. The upper half is added to the lower half element
 * by element, until one number is left. A warp reduction by `__shfl_down_sync` or `__shfl_xor_sync` has this order.
 */
export function treeSum(sums: Float32Array, start: number, width: number): number {
  const tree = sums.slice(start, start + width);
  for (let half = width / 2; half >= 1; half /= 2)
    for (let i = 0; i < half; i++) tree[i] = (tree[i] as number) + (tree[i + half] as number);
  return tree[0] as number;
}

/** The number of threads of a warp. */
export const WARP = 32;

/**
 * The sum over a block as block_reduce.cuh computes it: `treeSum` of each warp, then `treeSum` of the warps' sums, padded with +0
 * to 32.
 */
export function blockSum(sums: Float32Array): number {
  const warps = new Float32Array(WARP);
  for (let warp = 0; warp < sums.length / WARP; warp++) warps[warp] = treeSum(sums, warp * WARP, WARP);
  return treeSum(warps, 0, WARP);
}

/**
 * The sum over a block as blockReduce of SoftMax.cu computes it: each warp adds its threads' sums in order, starting at +0. Then
 * the warps' sums are added in order, starting at +0.
 */
export function sequentialBlockSum(sums: Float32Array): number {
  let total = 0;
  for (let start = 0; start < sums.length; start += WARP) {
    let warp = 0;
    for (let i = start; i < start + WARP; i++) warp = Math.fround(warp + (sums[i] as number));
    total = Math.fround(total + warp);
  }
  return total;
}
