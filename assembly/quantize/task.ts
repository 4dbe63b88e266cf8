// The parameters of a quantization, in a block of QuantizeTask.Bytes bytes that the caller allocates, fills by the
// setters below (`quantizeSource` first) and passes to `quantizeRows` or `quantizeColumns`.

import { QuantizeTask } from "../contract";
import { fillRandom8 } from "../core/random";
import { get, getFloat, put, putFloat } from "../core/record";
import { prepareRule } from "../core/scale";

const enum Field {
  Source,
  SourceType,
  Rows,
  Columns,
  Transposed,
  TileRows,
  TileColumns,
  SharedScales,
  Rule,
  Word,
  Pow2,
  Epsilon,
  GlobalAmax,
  E4m3Max,
  Squared,
  Transforms,
  SignMask,
  Rounding,
  SeedLo,
  SeedHi,
  OffsetLo,
  OffsetHi,
  Copy,
  Target,
  Scales,
}

/**
 * The source: a [rows, columns] matrix at `src` of Wide type `srcType`; if `transposed`, the transpose of `src`, which
 * is [columns, rows].
 */
export function quantizeSource(
  task: usize,
  src: usize,
  srcType: u32,
  rows: u32,
  columns: u32,
  transposed: bool,
): void {
  memory.fill(task, 0, QuantizeTask.Bytes);
  put(task, Field.Source, src);
  put(task, Field.SourceType, srcType);
  put(task, Field.Rows, rows);
  put(task, Field.Columns, columns);
  put(task, Field.Transposed, <usize>transposed);
}

/**
 * The tile whose elements share a scale. If `sharedScales`, the array of scales has one row per tileRows rows of the
 * matrix.
 */
export function quantizeTile(task: usize, tileRows: u32, tileColumns: u32, sharedScales: bool): void {
  put(task, Field.TileRows, tileRows);
  put(task, Field.TileColumns, tileColumns);
  put(task, Field.SharedScales, <usize>sharedScales);
}

/** Codes have format `word`; scales follow a ScaleRule. `pow2` and `epsilon` apply to f32 scales only. */
export function quantizeRule(task: usize, rule: i32, word: u32, pow2: bool, epsilon: f32): void {
  put(task, Field.Rule, rule);
  put(task, Field.Word, word);
  put(task, Field.Pow2, <usize>pow2);
  putFloat(task, Field.Epsilon, epsilon);
}

/**
 * Options of NVFP4; all are 0 without this call. `squared` selects the squared error of FourOverSix. `transforms`
 * applies a random Hadamard transform with `signMask` to every 16 elements of a row first (the source must be bf16).
 */
export function quantizeLevels(
  task: usize,
  globalAmax: f32,
  e4m3Max: f32,
  squared: bool,
  transforms: bool,
  signMask: u32,
): void {
  putFloat(task, Field.GlobalAmax, globalAmax);
  putFloat(task, Field.E4m3Max, e4m3Max);
  put(task, Field.Squared, <usize>squared);
  put(task, Field.Transforms, <usize>transforms);
  put(task, Field.SignMask, signMask);
}

/**
 * `rounding` is TiesToEven (the default without this call) or Stochastic, which draws by seed, offset, copy and index
 * of the code.
 */
export function quantizeDraws(
  task: usize,
  rounding: i32,
  seedLo: u32,
  seedHi: u32,
  offsetLo: u32,
  offsetHi: u32,
  copy: u32,
): void {
  put(task, Field.Rounding, rounding);
  put(task, Field.SeedLo, seedLo);
  put(task, Field.SeedHi, seedHi);
  put(task, Field.OffsetLo, offsetLo);
  put(task, Field.OffsetHi, offsetHi);
  put(task, Field.Copy, copy);
}

/**
 * The destination of the codes, row by row as `encode` stores them (4-bit codes: an even number of columns), and of the
 * stored scales, f32 or bytes.
 */
export function quantizeTarget(task: usize, dst: usize, scales: usize): void {
  put(task, Field.Target, dst);
  put(task, Field.Scales, scales);
}

export function sourceOf(task: usize): usize {
  return get(task, Field.Source);
}
export function sourceTypeOf(task: usize): u32 {
  return <u32>get(task, Field.SourceType);
}
export function rowsOf(task: usize): u32 {
  return <u32>get(task, Field.Rows);
}
export function columnsOf(task: usize): u32 {
  return <u32>get(task, Field.Columns);
}
export function isTransposed(task: usize): bool {
  return get(task, Field.Transposed) !== 0;
}
export function tileRowsOf(task: usize): u32 {
  return <u32>get(task, Field.TileRows);
}
export function tileColumnsOf(task: usize): u32 {
  return <u32>get(task, Field.TileColumns);
}
export function sharesScales(task: usize): bool {
  return get(task, Field.SharedScales) !== 0;
}
export function ruleOf(task: usize): i32 {
  return <i32>get(task, Field.Rule);
}
export function wordOf(task: usize): u32 {
  return <u32>get(task, Field.Word);
}
export function transforms(task: usize): bool {
  return get(task, Field.Transforms) !== 0;
}
export function signMaskOf(task: usize): u32 {
  return <u32>get(task, Field.SignMask);
}
export function roundingOf(task: usize): i32 {
  return <i32>get(task, Field.Rounding);
}
export function targetOf(task: usize): usize {
  return get(task, Field.Target);
}
export function scalesOf(task: usize): usize {
  return get(task, Field.Scales);
}

/**
 * Prepares the scale rule of a task at `rule` (core/scale.ts); `overflow` is the largest finite value of the source
 * type.
 */
export function prepareRuleOf(task: usize, rule: usize, overflow: f32): void {
  prepareRule(
    rule,
    ruleOf(task),
    wordOf(task),
    <u32>get(task, Field.Pow2),
    getFloat(task, Field.Epsilon),
    overflow,
    getFloat(task, Field.GlobalAmax),
    getFloat(task, Field.E4m3Max),
    <u32>get(task, Field.Squared),
  );
}

/** Writes the draws of `count` codes, starting at index `first`, a multiple of 16. */
export function drawFor(task: usize, draws: usize, first: u32, count: i32): void {
  fillRandom8(
    draws,
    first,
    count,
    <u32>get(task, Field.SeedLo),
    <u32>get(task, Field.SeedHi),
    <u32>get(task, Field.OffsetLo),
    <u32>get(task, Field.OffsetHi),
    <u32>get(task, Field.Copy),
  );
}
