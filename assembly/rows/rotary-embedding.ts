// Rotary embeddings of queries and keys (numerics.md §10.7). A row is the heads of one position of one sequence. The first
// 2 * `pairs` elements of a head are rotated in pairs; the others are copied.
//
//   (a, b) becomes (a cos - b sin, b cos + a sin), each operation rounded to f32

import { Wide } from "../contract";
import { fill } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, wideBytes, widen } from "../core/wide";

/** The position of a row that belongs to no sequence. */
const NONE: i64 = i64.MIN_VALUE;

/** The arguments of `rotaryEmbedding`. */
@unmanaged
class RotaryEmbeddingTask {
  x: usize;
  xType: u32;
  out: usize;
  outType: u32;
  cos: usize;
  sin: usize;
  starts: usize;
  cumulative: usize;
  heads: usize;
  width: usize;
  pairs: usize;
  positions: usize;
  batch: usize;
  length: usize;
  positionStride: usize;
  sequenceStride: usize;
  interleaved: bool;
  inverse: bool;
}

/**
 * Rotates rows [begin, end). `starts` (i32 [batch]) and `cumulative` (i32 [batch + 1]) may be null. With `cumulative`, sequence b
 * has the rows from cumulative[b] to cumulative[b + 1]. Without it, rows of one sequence are `positionStride` apart, and rows of
 * one position `sequenceStride`. `scratch` is four buffers of the calling thread (core/scratch.ts).
 */
export function rotaryEmbedding(task: RotaryEmbeddingTask, scratch: usize, begin: usize, end: usize): void {
  const cumulative = task.cumulative;
  const width = task.width;
  const pairs = task.pairs;
  const columns = task.heads * width;
  for (let row = begin; row < end; row++) {
    const position = cumulative
      ? positionOfToken(row, cumulative, task.starts, task.batch)
      : <i64>((row / task.positionStride) % task.length) +
        startOf(task.starts, (row / task.sequenceStride) % task.batch);
    if (position === NONE) {
      memory.fill(task.out + row * columns * wideBytes(task.outType), 0, columns * wideBytes(task.outType));
      continue;
    }
    const isInTable = position >= 0 && position < <i64>task.positions;
    for (let head: usize = 0; head < task.heads; head++) {
      const first = row * columns + head * width;
      for (let i: usize = 0; i < pairs; i += CHUNK / 2) {
        const count = min(CHUNK / 2, pairs - i);
        loadAngles(task, isInTable ? <usize>position * pairs + i : usize.MAX_VALUE, count, scratch);
        if (task.interleaved) rotateNeighbours(task, first + 2 * i, count, scratch);
        else rotateHalves(task, first + i, count, scratch);
      }
      for (let i: usize = 2 * pairs; i < width; i += CHUNK) {
        const count = min(CHUNK, width - i);
        widen(task.x, task.xType, first + i, count, scratch);
        narrow(scratch, task.out, task.outType, first + i, count);
      }
    }
  }
}

/** The position of a row of a sequence that begins at cumulative[b]; NONE if there is no such sequence. */
function positionOfToken(row: usize, cumulative: usize, starts: usize, batch: usize): i64 {
  for (let b: usize = 0; b < batch; b++) {
    const begin = <i64>load<i32>(cumulative + (b << 2));
    const end = <i64>load<i32>(cumulative + (b << 2), 4);
    if (begin <= <i64>row && <i64>row < end) return <i64>row - begin + startOf(starts, b);
  }
  return NONE;
}

function startOf(starts: usize, b: usize): i64 {
  return starts ? <i64>load<i32>(starts + (b << 2)) : 0;
}

/**
 * Writes the cosines and sines from `index` on to the third and fourth buffer. Writes NaN if `index` is the maximum of its type.
 */
function loadAngles(task: RotaryEmbeddingTask, index: usize, count: usize, scratch: usize): void {
  const c = scratch + 2 * BUFFER;
  const s = scratch + 3 * BUFFER;
  if (index === usize.MAX_VALUE) {
    fill(c, NaN, count);
    fill(s, NaN, count);
    return;
  }
  widen(task.cos, Wide.F32, index, count, c);
  widen(task.sin, Wide.F32, index, count, s);
  if (!task.inverse) return;
  for (let i: usize = 0; i < count; i += 4) v128.store(s + (i << 2), f32x4.neg(v128.load(s + (i << 2))));
}

/** Rotates elements [index, index + count). The second element of each pair is `pairs` elements after the first. */
function rotateHalves(task: RotaryEmbeddingTask, index: usize, count: usize, scratch: usize): void {
  const a = scratch;
  const b = scratch + BUFFER;
  const pairs = task.pairs;
  widen(task.x, task.xType, index, count, a);
  widen(task.x, task.xType, index + pairs, count, b);
  for (let i: usize = 0; i < count; i += 4) {
    const at = i << 2;
    const c = v128.load(scratch + 2 * BUFFER + at);
    const s = v128.load(scratch + 3 * BUFFER + at);
    const first = v128.load(a + at);
    const second = v128.load(b + at);
    v128.store(a + at, f32x4.sub(f32x4.mul(first, c), f32x4.mul(second, s)));
    v128.store(b + at, f32x4.add(f32x4.mul(second, c), f32x4.mul(first, s)));
  }
  narrow(a, task.out, task.outType, index, count);
  narrow(b, task.out, task.outType, index + pairs, count);
}

/** Rotates `count` pairs of neighbours from element `index` on. */
function rotateNeighbours(task: RotaryEmbeddingTask, index: usize, count: usize, scratch: usize): void {
  widen(task.x, task.xType, index, 2 * count, scratch);
  for (let i: usize = 0; i < count; i += 4) {
    const at = i << 3;
    const c = v128.load(scratch + 2 * BUFFER + (i << 2));
    const s = v128.load(scratch + 3 * BUFFER + (i << 2));
    const low = v128.load(scratch + at);
    const high = v128.load(scratch + at, 16);
    const first = v128.shuffle<f32>(low, high, 0, 2, 4, 6);
    const second = v128.shuffle<f32>(low, high, 1, 3, 5, 7);
    const a = f32x4.sub(f32x4.mul(first, c), f32x4.mul(second, s));
    const b = f32x4.add(f32x4.mul(second, c), f32x4.mul(first, s));
    v128.store(scratch + at, v128.shuffle<f32>(a, b, 0, 4, 1, 5));
    v128.store(scratch + at, v128.shuffle<f32>(a, b, 2, 6, 3, 7), 16);
  }
  narrow(scratch, task.out, task.outType, index, 2 * count);
}
