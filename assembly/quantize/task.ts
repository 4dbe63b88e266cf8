// The parameters of a quantization, in a task block of QuantizeTask.Bytes bytes. The caller allocates the block, fills
// it by the setters below (`quantizeSource` first) and passes it to `quantizeRows` or `quantizeColumns`.

import { prepare, storageOf, takeWords } from "../cast/encoder";
import { Overflow, QuantizeTask, Rounding } from "../contract";
import { fillRandom8, fillRandom8From } from "../core/random";
import { get, getFloat, put, putFloat } from "../core/record";
import { prepareRule, prepareScaling } from "../core/scale";
import { roundWide } from "../core/wide";

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
  Scaling,
  Transforms,
  SignMask,
  Rounding,
  SeedLo,
  SeedHi,
  OffsetLo,
  OffsetHi,
  Copy,
  Pitch,
  FirstLine,
  LineWidth,
  LineStride,
  FirstElement,
  Width,
  Stride,
  Target,
  Scales,
  Limit,
  Words,
  LineAmaxes,
}

/**
 * Sets the source, a [rows, columns] matrix of Wide type `srcType`. The matrix is `src` or, if `transposed`, the
 * transpose of `src`, which is then [columns, rows].
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
 * Sets the tile whose elements share a scale. The array of scales has one row for each row of the matrix or, if
 * `sharedScales`, one for each `tileRows` rows.
 */
export function quantizeTile(task: usize, tileRows: u32, tileColumns: u32, sharedScales: bool): void {
  put(task, Field.TileRows, tileRows);
  put(task, Field.TileColumns, tileColumns);
  put(task, Field.SharedScales, <usize>sharedScales);
}

/**
 * Sets the format word of the codes (contract.ts), and the ScaleRule of the scales. `pow2` and `epsilon` apply to f32 scales
 * only.
 */
export function quantizeRule(task: usize, rule: i32, word: u32, pow2: bool, epsilon: f32): void {
  put(task, Field.Rule, rule);
  put(task, Field.Word, word);
  put(task, Field.Pow2, <usize>pow2);
  putFloat(task, Field.Epsilon, epsilon);
}

/** Sets the ElementScaling bits by which elements are scaled; without this call none. */
export function quantizeScaling(task: usize, scaling: u32): void {
  put(task, Field.Scaling, scaling);
}

/** Sets an upper bound of the amaxes of lines, which is rounded to the type of the source; without this call there is none. */
export function quantizeLimit(task: usize, limit: f32): void {
  putFloat(task, Field.Limit, limit);
}

/**
 * Sets the options of NVFP4; without this call all are 0. `squared` selects the squared error for FourOverSix. With
 * `transforms`, each 16 elements of a row first go through a random Hadamard transform with the signs of `signMask`;
 * the source must then be bf16.
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
 * Gives each row of the matrix its own amax instead of `globalAmax` (numerics.md §5.9). The amaxes are computed and written to
 * `amaxes`, one f32 per row. Tiles then have one row, and there is no transform.
 */
export function quantizeLineAmaxes(task: usize, amaxes: usize): void {
  put(task, Field.LineAmaxes, amaxes);
}

/**
 * Sets the rounding of the codes: TiesToEven, which is also the default without this call, or Stochastic. Stochastic
 * rounding takes the random bits for this seed, offset and copy (0 rowwise, 1 columnwise) and the index of the code.
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
 * Sets stochastic rounding of the codes by the caller's random bits: one u32 at `words` per code, in the order of the codes
 * (cast/cast.ts, encodeByWords).
 */
export function quantizeWords(task: usize, words: usize): void {
  put(task, Field.Rounding, Rounding.Stochastic);
  put(task, Field.Words, words);
}

/**
 * Declares that this matrix is a part of a larger one, in which lines have `pitch` elements. Each code takes the random
 * bits of its element in the larger matrix. Line l of the part is line firstLine + (l / lineWidth) * lineStride + l %
 * lineWidth of the larger matrix, and element e of a line is element firstElement + (e / width) * stride + e % width.
 * All arguments are multiples of 16. Without this call the matrix is not a part of another.
 */
export function quantizePart(
  task: usize,
  pitch: u32,
  firstLine: u32,
  lineWidth: u32,
  lineStride: u32,
  firstElement: u32,
  width: u32,
  stride: u32,
): void {
  put(task, Field.Pitch, pitch);
  put(task, Field.FirstLine, firstLine);
  put(task, Field.LineWidth, lineWidth);
  put(task, Field.LineStride, lineStride);
  put(task, Field.FirstElement, firstElement);
  put(task, Field.Width, width);
  put(task, Field.Stride, stride);
}

/**
 * Sets the destinations of the codes and of the stored scales, which are f32 or bytes. Rows of codes follow each other
 * as `encode` stores them. 4-bit codes need an even number of columns.
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
export function scalingOf(task: usize): u32 {
  return <u32>get(task, Field.Scaling);
}
/** The upper bound of the amaxes of lines (`quantizeLimit`); infinity if there is none. */
export function limitOf(task: usize): f32 {
  const limit = getFloat(task, Field.Limit);
  return limit > 0 ? roundWide(sourceTypeOf(task), limit) : Infinity;
}
/** The address of the amaxes of rows (`quantizeLineAmaxes`); 0 if rows have none. */
export function lineAmaxesOf(task: usize): usize {
  return get(task, Field.LineAmaxes);
}
export function transforms(task: usize): bool {
  return get(task, Field.Transforms) !== 0;
}
export function signMaskOf(task: usize): u32 {
  return <u32>get(task, Field.SignMask);
}
function roundingOf(task: usize): i32 {
  return <i32>get(task, Field.Rounding);
}
export function targetOf(task: usize): usize {
  return get(task, Field.Target);
}
export function scalesOf(task: usize): usize {
  return get(task, Field.Scales);
}

/**
 * Prepares the scale rule of a task at `rule` (core/scale.ts). `overflow` is the largest finite value of the source
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
  prepareScaling(rule, scalingOf(task), sourceTypeOf(task));
}

/** Whether the matrix is a part of a larger one (quantizePart). */
export function isPart(task: usize): bool {
  return get(task, Field.Pitch) !== 0;
}

/** Prepares the encoder of a task at `encoder`. Overflow saturates. */
export function prepareEncoderOf(task: usize, encoder: usize): void {
  const word = wordOf(task);
  prepare(encoder, word, roundingOf(task), Overflow.Saturate, storageOf(word));
  if (get(task, Field.Words) !== 0) takeWords(encoder);
}

/**
 * Returns the address of the random bits of elements [first, first + count) of line `line`, where lines have `pitch` elements, in
 * the form that the task's encoder reads. Bits that the caller did not supply are drawn and written to `draws`. Nothing is read
 * or written without stochastic rounding.
 */
export function randomOf(task: usize, draws: usize, line: u32, first: u32, count: u32, pitch: u32): usize {
  const index = <u64>line * pitch + first;
  const words = get(task, Field.Words);
  if (words !== 0) return words + <usize>(index << 2);
  if (isPart(task)) {
    drawForPart(task, draws, line, first, count);
    return draws;
  }
  if (roundingOf(task) !== Rounding.Stochastic) return draws;
  const skip = <u32>index & 15;
  drawFor(task, draws, <u32>index - skip, count + skip);
  return draws + (skip << 1);
}

/**
 * Writes the random bits of elements [first, first + count) of line `line` to `draws`, for a part of a larger matrix;
 * `first` is a multiple of 16.
 */
function drawForPart(task: usize, draws: usize, line: u32, first: u32, count: u32): void {
  const lineWidth = <u32>get(task, Field.LineWidth);
  const width = <u32>get(task, Field.Width);
  const whole =
    <u64>get(task, Field.FirstLine) +
    <u64>(line / lineWidth) * <u64>get(task, Field.LineStride) +
    (line % lineWidth);
  const begin = whole * <u64>get(task, Field.Pitch) + <u64>get(task, Field.FirstElement);
  const end = first + count;
  for (let e = first; e < end; ) {
    const within = e % width;
    const run = min(end - e, width - within);
    fillRandom8From(
      draws + ((<usize>(e - first)) << 1),
      (begin + <u64>(e / width) * <u64>get(task, Field.Stride) + within) >> 4,
      run,
      <u32>get(task, Field.SeedLo),
      <u32>get(task, Field.SeedHi),
      <u32>get(task, Field.OffsetLo),
      <u32>get(task, Field.OffsetHi),
      <u32>get(task, Field.Copy),
    );
    e += run;
  }
}

/**
 * Writes the random bits of `count` codes to `draws`, as fillRandom8 does. The first code has the index `first`, a
 * multiple of 16.
 */
function drawFor(task: usize, draws: usize, first: u32, count: i32): void {
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
