// Packs one row of X or W in the form that the step functions read. The row is decoded, multiplied by its block scales
// if they belong to the operand, rounded if the datapath rounds operands, and padded with zeros to whole steps. The
// exponents of its values are packed too.

import { Kernel, Promotion, Staging } from "../contract";
import { decode, minExponent } from "../core/minifloat";
import { decodeLine, narrowCode, rowAt } from "./decode-line";
import { Operand, operandOf, ProductTask, scaleRowOf } from "./task";

/**
 * Bytes of the table of an operand of up to 8 bits: for each of 256 codes the f32 value, and then for each the i8
 * exponent.
 */
export const TABLE_BYTES: usize = 1280;
const TABLE_EXPONENTS: usize = 1024;

const F32_MIN_EXPONENT: i32 = -126;
/**
 * The exponents that Kernel.Narrow and Kernel.Wide read. Narrow exponents are bytes. Wide exponents are i16, shifted by
 * WIDE_SHIFT to the position of f64's exponent field. The exponents of W are biased, so that the sum of an exponent of
 * X and one of W is a biased exponent. Every such sum is positive. A zero operand has an exponent so small that its
 * products are below every product of two nonzero operands (Narrow) or below every accumulator (Wide). Nonzero operands
 * have exponents from -15 to 16 (Narrow) or from -254 to 256 (Wide).
 */
const NARROW_ZERO: i32 = -48;
const NARROW_MOST: i32 = 16;
const NARROW_BIAS: i32 = 127;
const WIDE_ZERO: i32 = -400;
const WIDE_BIAS: i32 = 1023;
export const WIDE_SHIFT: i32 = 4;

/** floor(log2 |v|) of a normal f32, at least `lowest`; 128 for infinities and NaN. */
function pinnedExponent(v: f32, lowest: i32): i32 {
  return max((<i32>(reinterpret<u32>(v) >> 23) & 0xff) - 127, lowest);
}

const E8M0_MIN_EXPONENT: i32 = -127;

/** The smallest exponent of the normal numbers of a format word; word 0 is f32. */
export function lowestOf(word: u32): i32 {
  return word === 0 ? F32_MIN_EXPONENT : minExponent(word);
}

/** The smallest exponent of a scale. f32 scales have e8m0's, because a datapath with block scales reads them as e8m0. */
function lowestScaleOf(word: u32): i32 {
  return word === 0 ? E8M0_MIN_EXPONENT : minExponent(word);
}

/** A line of an operand, and the memory of its packed form. */
@unmanaged
export class Line {
  /** Operand 0 (X) or 1 (W), and its table (`fillTable`). */
  operand: u32;
  table: usize;
  /** The number of values: K, rounded up to whole steps. */
  padded: u32;
  /** Memory for the line as f32, for its packed values, and for its packed exponents. */
  line: usize;
  values: usize;
  exponents: usize;
}

/** The size of a Line in bytes. */
export const LINE_BYTES: usize = 32;

/** Fills the table of operand 0 or 1 if its format has at most 8 bits. */
export function fillTable(task: ProductTask, operand: u32, table: usize): void {
  const record = operandOf(task, operand);
  if (record.width > 8) return;
  const word = record.word;
  const lowest = lowestOf(word);
  for (let code: u32 = 0; code < 256; code++) {
    const value = reinterpret<f32>(decode(code, word));
    store<f32>(table + (code << 2), value);
    const exponent = value === 0 ? NARROW_ZERO : min(pinnedExponent(value, lowest), NARROW_MOST);
    store<u8>(table + code, exponent + narrowBias(operand), TABLE_EXPONENTS);
  }
}

function narrowBias(operand: u32): i32 {
  return operand === 0 ? 0 : NARROW_BIAS;
}

/** The block scale at `index`, as f32. */
export function scaleAt(record: Operand, index: usize): f32 {
  const word = record.scaleWord;
  const scale = record.scale;
  return word === 0
    ? load<f32>(scale + (index << 2))
    : reinterpret<f32>(decode(load<u8>(scale + index), word));
}

/** Bytes of a packed value. */
export function valueBytes(kernel: i32): usize {
  return kernel === Kernel.Narrow || kernel === Kernel.Plain ? 4 : 8;
}
/** Bytes of a packed exponent, or 0 for kernels that do not align products. */
export function exponentBytes(kernel: i32): usize {
  if (kernel === Kernel.Narrow) return 1;
  return kernel === Kernel.Wide || kernel === Kernel.Scalar ? 2 : 0;
}

function packNarrow(record: Operand, to: Line, row: u32, depth: u32): void {
  const table = to.table;
  const values = to.values;
  const exponents = to.exponents;
  const width = record.width;
  const data = rowAt(record, row, depth);
  if (width === 8) {
    for (let k: u32 = 0; k < depth; k++) {
      const code = <u32>load<u8>(data + k);
      store<u32>(values + (k << 2), load<u32>(table + (code << 2)));
      store<u8>(exponents + k, load<u8>(table + code, TABLE_EXPONENTS));
    }
    return;
  }
  for (let k: u32 = 0; k < depth; k++) {
    const code = narrowCode(data, width, k);
    store<u32>(values + (k << 2), load<u32>(table + (code << 2)));
    store<u8>(exponents + k, load<u8>(table + code, TABLE_EXPONENTS));
  }
}

/** `value` rounded to nearest even, to 23 - `dropped` fraction bits, in f32's exponent range. */
function roundTo(value: f32, dropped: u32): f32 {
  if (isNaN(value)) return value;
  const bits = reinterpret<u32>(value);
  const half: u32 = 1 << (dropped - 1);
  return reinterpret<f32>((bits + half - 1 + ((bits >> dropped) & 1)) & ((<u32>-1) << dropped));
}

/** Exponent `e` of operand 0 or 1 in the form that `kernel` reads, if it reads i16. */
export function alignedExponent(kernel: i32, operand: u32, e: i32): i32 {
  if (kernel !== Kernel.Wide) return e;
  return (max(e, WIDE_ZERO) + (operand === 0 ? 0 : WIDE_BIAS)) << WIDE_SHIFT;
}

/** Packs elements [start, end) of a decoded line, which share a scale, as f64 values and i16 exponents. */
function packAligned(task: ProductTask, to: Line, start: u32, end: u32, scale: f32): void {
  const operand = to.operand;
  const line = to.line;
  const values = to.values;
  const exponents = to.exponents;
  const record = operandOf(task, operand);
  const kernel = task.kernel;
  const staging = record.staging;
  const zero = task.zeroOperand;
  const rounded = staging === Staging.Bf16 || staging === Staging.Tf32;
  const lowest = rounded ? F32_MIN_EXPONENT : lowestOf(record.word);
  const shift = staging >= Staging.Scaled ? pinnedExponent(scale, lowestScaleOf(record.scaleWord)) : 0;
  for (let k = start; k < end; k++) {
    const element = load<f32>(line + (k << 2));
    let value = <f64>element * <f64>scale;
    let pinned = element;
    if (rounded) {
      pinned = roundTo(<f32>value, staging === Staging.Bf16 ? 16 : 13);
      value = pinned;
    }
    store<f64>(values + (k << 3), value);
    let exponent = staging === Staging.Grouped ? shift : pinnedExponent(pinned, lowest) + shift;
    if (value === 0 && staging !== Staging.Grouped) exponent = zero;
    store<i16>(exponents + (k << 1), alignedExponent(kernel, operand, exponent));
  }
}

/** Packs `count` elements of a line, as `packAligned` does for operands without scale or rounding; `count` is a multiple of 4. */
export function packUnscaled(task: ProductTask, to: Line, count: u32): void {
  const operand = to.operand;
  let line = to.line;
  let values = to.values;
  let exponents = to.exponents;
  const kernel = task.kernel;
  const shift = kernel === Kernel.Wide ? WIDE_SHIFT : 0;
  const bias = i32x4.splat((alignedExponent(kernel, operand, 0) >> shift) - 127);
  const lowest = i32x4.splat(
    alignedExponent(kernel, operand, lowestOf(operandOf(task, operand).word)) >> shift,
  );
  const zero = i32x4.splat(alignedExponent(kernel, operand, task.zeroOperand) >> shift);
  const magnitude = i32x4.splat(0x7fffffff);
  for (const end = line + (count << 2); line < end; line += 16) {
    const value = v128.load(line);
    v128.store(values, v128.promote_low<f32>(value));
    v128.store(values, v128.promote_low<f32>(v128.shuffle<i64>(value, value, 1, 1)), 16);
    const size = v128.and(value, magnitude);
    const exponent = v128.max<i32>(v128.add<i32>(v128.shr<u32>(size, 23), bias), lowest);
    const isZero = v128.eq<i32>(size, i32x4.splat(0));
    const stored = v128.shl<i32>(v128.bitselect(zero, exponent, isZero), shift);
    v128.store64_lane(exponents, i16x8.narrow_i32x4_s(stored, stored), 0);
    values += 32;
    exponents += 8;
  }
}

/** As `packAligned`, for kernels that do not align products. */
function packValues(kernel: i32, to: Line, start: u32, end: u32, scale: f32): void {
  const line = to.line;
  const values = to.values;
  for (let k = start; k < end; k++) {
    const value = <f64>load<f32>(line + (k << 2)) * <f64>scale;
    if (kernel === Kernel.Plain) store<f32>(values + (k << 2), <f32>value);
    else store<f64>(values + (k << 3), value);
  }
}

/** Packs row `row` of the operand of `to`. */
export function packLine(task: ProductTask, promotion: i32, to: Line, row: u32): void {
  const operand = to.operand;
  const table = to.table;
  const padded = to.padded;
  const line = to.line;
  const values = to.values;
  const exponents = to.exponents;
  const record = operandOf(task, operand);
  const kernel = task.kernel;
  const depth = task.depth;
  const narrow = kernel === Kernel.Narrow;
  const bytes = valueBytes(kernel);
  memory.fill(values + <usize>depth * bytes, 0, <usize>(padded - depth) * bytes);
  const zero = narrow
    ? NARROW_ZERO + narrowBias(operand)
    : alignedExponent(kernel, operand, task.zeroOperand);
  for (let k = depth; k < padded; k++) {
    if (narrow) store<u8>(exponents + k, zero);
    else if (exponentBytes(kernel)) store<i16>(exponents + (k << 1), zero);
  }
  if (narrow) {
    packNarrow(record, to, row, depth);
    return;
  }
  const scaled = record.scale !== 0 && promotion < Promotion.ScaleProduct;
  const needsNoScaling = kernel === Kernel.Plain && !scaled;
  decodeLine(record, table, row, depth, needsNoScaling ? values : line);
  if (needsNoScaling) return;
  if (!scaled && exponentBytes(kernel) && record.staging === Staging.Plain && (padded & 3) === 0) {
    memory.fill(line + ((<usize>depth) << 2), 0, (<usize>(padded - depth)) << 2);
    packUnscaled(task, to, padded);
    return;
  }
  const block = scaled ? record.block : depth;
  let index = scaled ? scaleRowOf(record, row) : 0;
  for (let start: u32 = 0; start < depth; start += block) {
    const end = min(start + block, depth);
    const scale: f32 = scaled ? scaleAt(record, index) : 1;
    if (exponentBytes(kernel)) packAligned(task, to, start, end, scale);
    else packValues(kernel, to, start, end, scale);
    index += record.blockStride;
  }
}
