// The task of a quantization, which `quantizeRows`, `quantizeColumns` and `quantizeLines` take.

import { At, prepare, storageOf, takeWords } from "../cast/encoder";
import { Overflow, Rounding } from "../contract";
import { Draws, fillRandom8, fillRandom8From } from "../core/random";
import { prepareRule, ScaleParameters } from "../core/scale";
import { roundWide } from "../core/wide";
import { Panel } from "./panel";

/**
 * The position of a matrix in a larger one, in which lines have `pitch` elements. Each code takes the random bits of its element
 * in the larger matrix. Line l of the part is line firstLine + (l / lineWidth) * lineStride + l % lineWidth of the larger matrix,
 * and element e of a line is element firstElement + (e / width) * stride + e % width. All fields are multiples of 16. If `pitch`
 * is 0, the matrix is not part of another.
 */
@unmanaged
export class MatrixPart {
  pitch: u32;
  firstLine: u32;
  lineWidth: u32;
  lineStride: u32;
  firstElement: u32;
  width: u32;
  stride: u32;
}

@unmanaged
export class QuantizeTask {
  draws: Draws;
  scale: ScaleParameters;
  part: MatrixPart;
  /**
   * The source, a [rows, columns] matrix of Wide type `srcType`: `src` or, if `transposed`, the transpose of `src`, which is then
   * [columns, rows].
   */
  src: usize;
  srcType: u32;
  rows: u32;
  columns: u32;
  transposed: bool;
  /**
   * The tile whose elements share a scale. The array of scales has one row for each row of the matrix or, if `sharedScales`, one
   * for each `tileRows` rows.
   */
  tileRows: u32;
  tileColumns: u32;
  sharedScales: bool;
  /** An upper bound of the amaxes of lines, which is rounded to the type of the source; 0 if there is none. */
  limit: f32;
  /**
   * With `transforms`, each 16 elements of a row first go through a random Hadamard transform with the signs of `signMask`; the
   * source must then be bf16.
   */
  transforms: bool;
  signMask: u32;
  /**
   * If not null, each row of the matrix has its own amax instead of the amax of the scale parameters (numerics.md §5.9). The
   * amaxes are computed and written there, one f32 per row. Tiles then have one row, and there is no transform.
   */
  lineAmaxes: usize;
  /**
   * The rounding of the codes: TiesToEven or Stochastic. Stochastic rounding takes the random bits of `draws` and the index of
   * the code or, if `words` is not null, the caller's random bits: one u32 per code, in the order of the codes (cast/cast.ts,
   * encodeByWords).
   */
  rounding: i32;
  words: usize;
  /**
   * The destinations of the codes and of the stored scales, which are f32 or bytes. Rows of codes follow each other as `encode`
   * stores them. 4-bit codes need an even number of columns.
   */
  dst: usize;
  scales: usize;
}

/** The upper bound of the amaxes of lines; infinity if there is none. */
export function limitOf(task: QuantizeTask): f32 {
  return task.limit > 0 ? roundWide(task.srcType, task.limit) : Infinity;
}

/** Prepares the scale rule of a task at `rule` (core/scale.ts). */
export function prepareRuleOf(task: QuantizeTask, rule: usize): void {
  prepareRule(rule, task.scale, task.srcType);
}

/** Whether the matrix is part of a larger one. */
export function isPart(task: QuantizeTask): bool {
  return task.part.pitch !== 0;
}

/** Prepares the encoder of a task at `encoder`. Overflow saturates. `codes` is as in `prepareRunOf`. */
export function prepareEncoderOf(task: QuantizeTask, encoder: usize, codes: usize): void {
  const word = task.scale.word;
  prepare(encoder, word, task.rounding, Overflow.Saturate, storageOf(word));
  if (task.words !== 0) takeWords(encoder);
  prepareRunOf(task, encoder, codes);
}

/** Sets the fields of a prepared encoder that all runs of a task share. `codes` is the buffer At.Codes. */
export function prepareRunOf(task: QuantizeTask, encoder: usize, codes: usize): void {
  store<usize>(encoder, codes, At.Codes);
  store<u32>(encoder, task.scale.scaling, At.Scaling);
  store<u32>(encoder, task.srcType, At.SourceType);
}

/** Makes `panel` a panel of the task's matrix, with a buffer. */
export function preparePanelOf(task: QuantizeTask, panel: Panel, buffer: usize): void {
  panel.src = task.src;
  panel.srcType = task.srcType;
  panel.rows = task.rows;
  panel.columns = task.columns;
  panel.transposed = task.transposed;
  panel.buffer = buffer;
}

/**
 * Returns the address of the random bits of `count` codes of a line from code `index` on, in the form that the task's encoder
 * reads. Bits that the caller did not supply are drawn and written to `buffer`. Nothing is read or written without stochastic
 * rounding.
 */
export function randomOf(task: QuantizeTask, buffer: usize, index: u64, count: u32): usize {
  if (task.words !== 0) return task.words + <usize>(index << 2);
  if (isPart(task)) {
    drawForPart(task, buffer, index, count);
    return buffer;
  }
  if (task.rounding !== Rounding.Stochastic) return buffer;
  const skip = <u32>index & 15;
  fillRandom8(task.draws, buffer, <u32>index - skip, count + skip);
  return buffer + (skip << 1);
}

/**
 * Writes the random bits of `count` codes of a line from code `index` on to `buffer`, for a part of a larger matrix; the code is
 * a multiple of 16 from the beginning of its line.
 */
function drawForPart(task: QuantizeTask, buffer: usize, index: u64, count: u32): void {
  const part = task.part;
  const line = <u32>(index / task.columns);
  const first = <u32>(index % task.columns);
  const width = part.width;
  const largerLine =
    <u64>part.firstLine + <u64>(line / part.lineWidth) * <u64>part.lineStride + (line % part.lineWidth);
  const begin = largerLine * <u64>part.pitch + <u64>part.firstElement;
  const end = first + count;
  for (let e = first; e < end; ) {
    const within = e % width;
    const run = min(end - e, width - within);
    const draw = (begin + <u64>(e / width) * <u64>part.stride + within) >> 4;
    fillRandom8From(task.draws, buffer + ((<usize>(e - first)) << 1), draw, run);
    e += run;
  }
}
