// The parameters of a matrix product, D[m, n] = sum over k of X[m, k] * W[n, k]. They are in a task block of
// GemmTask.Bytes bytes. The caller allocates the block, fills it by the setters below and passes it to `gemm`. Both
// operands are stored as rows of codes along K, the `depth`.

import { GemmTask, Kernel } from "../contract";
import { get, put } from "../core/record";

const enum Field {
  Rows,
  Columns,
  Depth,
  Output,
  Kernel,
  Step,
  AlignBits,
  FractionBits,
  ZeroOperand,
  ZeroAccumulator,
  Group,
  Promotion,
  Interval,
  Splits,
  SplitTile,
  X,
  W = 25,
  Scale = 35,
  Beta,
  Addend,
  AddendType,
  Bias,
  BiasType,
  Target,
  TargetWord,
  TargetOverflow,
  TargetScale,
  Amax,
  LineScaleW,
  LineStrideW,
  LineScaleX,
  LineStrideX,
  LineAmaxes,
  LineAmaxW,
  LineAmaxStrideW,
  LineAmaxX,
  LineAmaxStrideX,
}

const enum OperandField {
  Data,
  Width,
  Word,
  Staging,
  Scale,
  ScaleWord,
  Block,
  RowShift,
  RowStride,
  BlockStride,
}

/** X is rows x depth, W is columns x depth, `output` f32 rows x columns. */
export function gemmShape(task: usize, rows: u32, columns: u32, depth: u32, output: usize): void {
  memory.fill(task, 0, GemmTask.Bytes);
  put(task, Field.Rows, rows);
  put(task, Field.Columns, columns);
  put(task, Field.Depth, depth);
  put(task, Field.Output, output);
}

/**
 * Sets the parameters of the dot-add step, which adds `step` products (datapath.ts). If `group` > 1, the products of
 * each `group` consecutive k's are first summed exactly.
 */
export function gemmDatapath(
  task: usize,
  kernel: i32,
  step: u32,
  alignBits: i32,
  fractionBits: i32,
  zeroOperand: i32,
  zeroAccumulator: i32,
  group: u32,
): void {
  put(task, Field.Kernel, kernel);
  put(task, Field.Step, step);
  put(task, Field.AlignBits, alignBits);
  put(task, Field.FractionBits, fractionBits);
  put(task, Field.ZeroOperand, zeroOperand);
  put(task, Field.ZeroAccumulator, zeroAccumulator);
  put(task, Field.Group, group);
}

/**
 * Sets how partial sums are added. A chain ends after `interval` k's, a multiple of the step, or never if `interval` is
 * 0. With split-K, K is divided into `splits` splits of whole tiles of `splitTile` k's, whose sums are added in f32.
 */
export function gemmReduction(task: usize, promotion: i32, interval: u32, splits: u32, splitTile: u32): void {
  put(task, Field.Promotion, promotion);
  put(task, Field.Interval, interval);
  put(task, Field.Splits, splits);
  put(task, Field.SplitTile, splitTile);
}

/**
 * Sets operand 0 (X) or 1 (W): codes of `width` 4, 8, 16 or 32 bits in the format of format word `word` (contract.ts; 0
 * is f32). Rows start at whole bytes.
 */
export function gemmOperand(
  task: usize,
  operand: u32,
  data: usize,
  width: u32,
  word: u32,
  staging: i32,
): void {
  const record = operandOf(task, operand);
  put(record, OperandField.Data, data);
  put(record, OperandField.Width, width);
  put(record, OperandField.Word, word);
  put(record, OperandField.Staging, staging);
}

/**
 * Sets the block scales of an operand. Element (row, k) has the scale at index (row >> rowShift) * rowStride + floor(k
 * / block) * blockStride. A scale is f32 if `word` is 0, else a byte in the format of that format word; UE4M3 is e4m3
 * without a sign.
 */
export function gemmScale(
  task: usize,
  operand: u32,
  scale: usize,
  word: u32,
  block: u32,
  rowShift: u32,
  rowStride: u32,
  blockStride: u32,
): void {
  const record = operandOf(task, operand);
  put(record, OperandField.Scale, scale);
  put(record, OperandField.ScaleWord, word);
  put(record, OperandField.Block, block);
  put(record, OperandField.RowShift, rowShift);
  put(record, OperandField.RowStride, rowStride);
  put(record, OperandField.BlockStride, blockStride);
}

/**
 * Sets x = s * acc, where s = (alpha * scaleA) * scaleB. If beta is not 0, beta * C is added; `c` has the Wide type
 * `type`.
 */
export function gemmScaling(
  task: usize,
  alpha: f32,
  scaleA: f32,
  scaleB: f32,
  beta: f32,
  c: usize,
  type: u32,
): void {
  put(task, Field.Scale, reinterpret<u32>(alpha * scaleA * scaleB));
  put(task, Field.Beta, reinterpret<u32>(beta));
  put(task, Field.Addend, c);
  put(task, Field.AddendType, type);
}

/**
 * Sets line scales, which replace the factor of gemmScaling: a sum is multiplied by scaleW[n * strideW], then by scaleX[m *
 * strideX], then by alpha. A stride is 1, or 0 if all lines share a scale; a null pointer means 1.
 */
export function gemmLineScales(
  task: usize,
  alpha: f32,
  scaleW: usize,
  strideW: u32,
  scaleX: usize,
  strideX: u32,
): void {
  put(task, Field.Scale, reinterpret<u32>(alpha));
  put(task, Field.LineScaleW, scaleW);
  put(task, Field.LineStrideW, strideW);
  put(task, Field.LineScaleX, scaleX);
  put(task, Field.LineStrideX, strideX);
}

/**
 * Sets the amaxes that multiply the scaled sum before the bias is added (numerics.md §5.10): amaxW[n * strideW] and amaxX[m *
 * strideX]. A stride is 1, or 0 if all lines share an amax; a null pointer means 1. beta * C is then added to the rounded result.
 */
export function gemmLineAmaxes(task: usize, amaxW: usize, strideW: u32, amaxX: usize, strideX: u32): void {
  put(task, Field.LineAmaxes, 1);
  put(task, Field.LineAmaxW, amaxW);
  put(task, Field.LineAmaxStrideW, strideW);
  put(task, Field.LineAmaxX, amaxX);
  put(task, Field.LineAmaxStrideX, strideX);
}

/** Sets the bias: bias[n], of Wide type `type`, is added to the scaled sum. A null `bias` means none. */
export function gemmBias(task: usize, bias: usize, type: u32): void {
  put(task, Field.Bias, bias);
  put(task, Field.BiasType, type);
}

/**
 * Sets the output: x as f32 if `word` is 0, else the codes of x * scale in a format of 8 or 16 bits. If `amax` is not
 * 0, the f32 at `amax` is raised to the largest |x|, NaN ignored.
 */
export function gemmTarget(
  task: usize,
  target: usize,
  word: u32,
  overflow: i32,
  scale: f32,
  amax: usize,
): void {
  put(task, Field.Target, target);
  put(task, Field.TargetWord, word);
  put(task, Field.TargetOverflow, overflow);
  put(task, Field.TargetScale, reinterpret<u32>(scale));
  put(task, Field.Amax, amax);
}

export function operandOf(task: usize, operand: u32): usize {
  return task + ((operand === 0 ? <usize>Field.X : <usize>Field.W) << 3);
}

export function rowsOf(task: usize): u32 {
  return <u32>get(task, Field.Rows);
}
export function columnsOf(task: usize): u32 {
  return <u32>get(task, Field.Columns);
}
export function depthOf(task: usize): u32 {
  return <u32>get(task, Field.Depth);
}
export function outputOf(task: usize): usize {
  return get(task, Field.Output);
}
export function kernelOf(task: usize): i32 {
  return <i32>get(task, Field.Kernel);
}
export function alignBitsOf(task: usize): i32 {
  return <i32>get(task, Field.AlignBits);
}
export function fractionBitsOf(task: usize): i32 {
  return <i32>get(task, Field.FractionBits);
}
export function zeroOperandOf(task: usize): i32 {
  return <i32>get(task, Field.ZeroOperand);
}
export function zeroAccumulatorOf(task: usize): i32 {
  return <i32>get(task, Field.ZeroAccumulator);
}
export function groupOf(task: usize): u32 {
  return <u32>get(task, Field.Group);
}
export function promotionOf(task: usize): i32 {
  return <i32>get(task, Field.Promotion);
}
export function intervalOf(task: usize): u32 {
  return <u32>get(task, Field.Interval);
}
export function splitsOf(task: usize): u32 {
  return max<u32>(1, <u32>get(task, Field.Splits));
}
export function splitTileOf(task: usize): u32 {
  return <u32>get(task, Field.SplitTile);
}

function floatOf(task: usize, field: usize): f32 {
  return reinterpret<f32>(<u32>get(task, field));
}
export function accumulatorScaleOf(task: usize): f32 {
  return floatOf(task, Field.Scale);
}
/** Whether the factor differs from element to element: gemmLineScales was called. */
export function hasLineScales(task: usize): bool {
  return (get(task, Field.LineStrideW) | get(task, Field.LineStrideX)) !== 0;
}
/** The sum of element [m, n] under the scales of gemmLineScales. */
export function scaledByLines(task: usize, acc: f32, m: usize, n: usize): f32 {
  const w = get(task, Field.LineScaleW);
  const x = get(task, Field.LineScaleX);
  if (w) acc *= load<f32>(w + ((n * get(task, Field.LineStrideW)) << 2));
  return x ? acc * load<f32>(x + ((m * get(task, Field.LineStrideX)) << 2)) : acc;
}
/** Whether gemmLineAmaxes was called. */
export function hasLineAmaxes(task: usize): bool {
  return get(task, Field.LineAmaxes) !== 0;
}
/** The scaled sum of element [m, n] times its amaxes. If one operand has only one amax, the two amaxes are multiplied first. */
export function scaledByAmaxes(task: usize, p: f32, m: usize, n: usize): f32 {
  const w = get(task, Field.LineAmaxW);
  const x = get(task, Field.LineAmaxX);
  const strideW = get(task, Field.LineAmaxStrideW);
  const strideX = get(task, Field.LineAmaxStrideX);
  const ofW: f32 = w ? load<f32>(w + ((n * strideW) << 2)) : 1;
  const ofX: f32 = x ? load<f32>(x + ((m * strideX) << 2)) : 1;
  const both = strideW !== 0 && strideX !== 0 && rowsOf(task) > 1 && columnsOf(task) > 1;
  return both ? p * ofX * ofW : p * (ofX * ofW);
}
export function betaOf(task: usize): f32 {
  return floatOf(task, Field.Beta);
}
export function addendOf(task: usize): usize {
  return get(task, Field.Addend);
}
export function addendTypeOf(task: usize): u32 {
  return <u32>get(task, Field.AddendType);
}
export function biasOf(task: usize): usize {
  return get(task, Field.Bias);
}
export function biasTypeOf(task: usize): u32 {
  return <u32>get(task, Field.BiasType);
}
export function targetOf(task: usize): usize {
  return get(task, Field.Target);
}
export function targetWordOf(task: usize): u32 {
  return <u32>get(task, Field.TargetWord);
}
export function targetOverflowOf(task: usize): i32 {
  return <i32>get(task, Field.TargetOverflow);
}
export function targetScaleOf(task: usize): f32 {
  return floatOf(task, Field.TargetScale);
}
export function amaxOf(task: usize): usize {
  return get(task, Field.Amax);
}

/**
 * The number of k's per call of the step function: the datapath's n, or for other kernels a number that suits the
 * cache.
 */
export function stepOf(task: usize): u32 {
  const kernel = kernelOf(task);
  if (kernel === Kernel.Exact) return max<u32>(1, depthOf(task));
  return kernel === Kernel.Plain ? 256 : <u32>get(task, Field.Step);
}

/** K, rounded up to whole steps. */
export function paddedDepth(task: usize): u32 {
  const step = stepOf(task);
  return ((depthOf(task) + step - 1) / step) * step;
}

export function dataOf(record: usize): usize {
  return get(record, OperandField.Data);
}
export function widthOf(record: usize): u32 {
  return <u32>get(record, OperandField.Width);
}
export function wordOf(record: usize): u32 {
  return <u32>get(record, OperandField.Word);
}
export function stagingOf(record: usize): i32 {
  return <i32>get(record, OperandField.Staging);
}
export function scaleOf(record: usize): usize {
  return get(record, OperandField.Scale);
}
export function scaleWordOf(record: usize): u32 {
  return <u32>get(record, OperandField.ScaleWord);
}
export function blockOf(record: usize): u32 {
  return <u32>get(record, OperandField.Block);
}

/** The index of the scale of row `row` in the first block. */
export function scaleRowOf(record: usize, row: u32): usize {
  return (<usize>row >> get(record, OperandField.RowShift)) * get(record, OperandField.RowStride);
}
export function blockStrideOf(record: usize): usize {
  return get(record, OperandField.BlockStride);
}
