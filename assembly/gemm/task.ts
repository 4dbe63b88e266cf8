// The task of a matrix product, D[m, n] = sum over k of X[m, k] * W[n, k]. Both operands are stored as rows of codes along K, the
// `depth`.

import { Kernel } from "../contract";

@unmanaged
export class Operand {
  /** Codes of `width` 4, 8, 16 or 32 bits in the format `word` (contract.ts; 0 is f32). Rows start at whole bytes. */
  data: usize;
  width: u32;
  word: u32;
  staging: i32;
  /**
   * The block scales; null if there are none. Element (row, k) has the scale at index (row >> rowShift) * rowStride + floor(k /
   * block) * blockStride. A scale is f32 if `scaleWord` is 0, else a byte of that format; UE4M3 is e4m3 without a sign.
   */
  scale: usize;
  scaleWord: u32;
  block: u32;
  rowShift: u32;
  rowStride: u32;
  blockStride: u32;
}

/** The parameters of a product with f32 sums: X is rows x depth, W is columns x depth. */
@unmanaged
export class ProductTask {
  x: Operand;
  w: Operand;
  rows: u32;
  columns: u32;
  depth: u32;
  kernel: i32;
  /**
   * The parameters of the dot-add step, which adds `step` products (datapath.ts). If `group` > 1, the products of each `group`
   * consecutive k's are first summed exactly.
   */
  step: u32;
  alignBits: i32;
  fractionBits: i32;
  zeroOperand: i32;
  zeroAccumulator: i32;
  group: u32;
}

@unmanaged
export class GemmTask extends ProductTask {
  /** The sums, f32 [rows, columns]. */
  output: usize;
  /**
   * How partial sums are added. A chain ends after `interval` k's, a multiple of the step, or never if `interval` is 0. With
   * split-K, K is divided into `splits` splits (at least 1) of whole tiles of `splitTile` k's, whose sums are added in f32.
   */
  promotion: i32;
  interval: u32;
  splits: u32;
  splitTile: u32;
}

/** The arguments of `gemmEpilogue`. */
@unmanaged
export class EpilogueTask {
  /** The sums, f32 [rows, columns], and the number of splits by which they were computed. */
  output: usize;
  rows: u32;
  columns: u32;
  splits: u32;
  /** x = s * sum, where s = (alpha * scaleA) * scaleB. If beta is not 0, beta * C is added; C has the Wide type `addendType`. */
  alpha: f32;
  scaleA: f32;
  scaleB: f32;
  beta: f32;
  addend: usize;
  addendType: u32;
  /**
   * Line scales, which replace scaleA and scaleB: a sum is multiplied by lineScaleW[n * lineStrideW], then by lineScaleX[m *
   * lineStrideX], then by alpha. A stride is 1, or 0 if all lines share a scale; a null pointer means 1. If both strides are 0,
   * there are no line scales; otherwise scaleA and scaleB are 1.
   */
  lineScaleW: usize;
  lineStrideW: u32;
  lineScaleX: usize;
  lineStrideX: u32;
  /**
   * The amaxes that multiply the scaled sum before the bias is added (numerics.md §5.10): lineAmaxW[n * lineAmaxStrideW] and
   * lineAmaxX[m * lineAmaxStrideX]. Strides and null pointers are as above. beta * C is then added to the rounded result.
   */
  hasLineAmaxes: bool;
  lineAmaxW: usize;
  lineAmaxStrideW: u32;
  lineAmaxX: usize;
  lineAmaxStrideX: u32;
  /** bias[n], of Wide type `biasType`, is added to the scaled sum. A null pointer means none. */
  bias: usize;
  biasType: u32;
  /**
   * The result: x as f32 if `targetWord` is 0, else the codes of x * targetScale in a format of 8 or 16 bits. If `amax` is not
   * null, the f32 there is raised to the largest |x|, NaN ignored.
   */
  target: usize;
  targetWord: u32;
  targetOverflow: i32;
  targetScale: f32;
  amax: usize;
}

/** Operand 0 (X) or 1 (W). */
export function operandOf(task: ProductTask, operand: u32): Operand {
  return operand === 0 ? task.x : task.w;
}

/** Whether the factor differs from element to element, because there are line scales. */
export function hasLineScales(task: EpilogueTask): bool {
  return (task.lineStrideW | task.lineStrideX) !== 0;
}

/** The sum of element [m, n] under the line scales. */
export function scaledByLines(task: EpilogueTask, acc: f32, m: usize, n: usize): f32 {
  const w = task.lineScaleW;
  const x = task.lineScaleX;
  if (w) acc *= load<f32>(w + ((n * task.lineStrideW) << 2));
  return x ? acc * load<f32>(x + ((m * task.lineStrideX) << 2)) : acc;
}

/** The scaled sum of element [m, n] times its amaxes. If one operand has only one amax, the two amaxes are multiplied first. */
export function scaledByAmaxes(task: EpilogueTask, p: f32, m: usize, n: usize): f32 {
  const w = task.lineAmaxW;
  const x = task.lineAmaxX;
  const strideW = task.lineAmaxStrideW;
  const strideX = task.lineAmaxStrideX;
  const ofW: f32 = w ? load<f32>(w + ((n * strideW) << 2)) : 1;
  const ofX: f32 = x ? load<f32>(x + ((m * strideX) << 2)) : 1;
  const both = strideW !== 0 && strideX !== 0 && task.rows > 1 && task.columns > 1;
  return both ? p * ofX * ofW : p * (ofX * ofW);
}

/**
 * The number of k's per call of the step function: the datapath's n, or for other kernels a number that suits the
 * cache.
 */
export function stepOf(task: ProductTask): u32 {
  const kernel = task.kernel;
  if (kernel === Kernel.Exact) return max<u32>(1, task.depth);
  return kernel === Kernel.Plain ? 256 : task.step;
}

/** K, rounded up to whole steps. */
export function paddedDepth(task: ProductTask): u32 {
  const step = stepOf(task);
  return ((task.depth + step - 1) / step) * step;
}

/** The index of the scale of row `row` in the first block. */
export function scaleRowOf(operand: Operand, row: u32): usize {
  return (<usize>row >> operand.rowShift) * operand.rowStride;
}
