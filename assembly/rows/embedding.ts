// Embedding lookup in a table [V, D], where D is `columns`, and the gradient of the table. Row v of the gradient is the sum of
// the rows of `grad` whose id is v. The rows are added in f32 in ascending order of their positions, starting at +0, and the sum
// is rounded once. An id outside [0, V) gives a row of NaN and contributes to no gradient.
//
// The table can be a part of a larger one with `whole` rows: it then has the rows of the ids from `first` on. An id of another
// part gives a row of -0, which changes no sum, and contributes to no gradient.
import { addEach, fill } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";
import { EmbeddingTask } from "./embedding.gen";

/** Marks the end of a linked list of positions. */
const NONE: u32 = 0xffffffff;

/**
 * Writes the embeddings of positions [begin, end). `ids` are i32; `scratch` is one buffer of the calling thread
 * (core/scratch.ts).
 */
export function embedding(task: EmbeddingTask, scratch: usize, begin: usize, end: usize): void {
  const vocabulary = task.vocabulary;
  const whole = task.whole;
  const columns = task.columns;
  for (let position = begin; position < end; position++) {
    const id = load<i32>(task.ids + (position << 2));
    const row = <usize>id - task.first;
    const isId = id >= 0 && <usize>id < whole;
    const other: f32 = isId ? -0.0 : NaN;
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      if (isId && row < vocabulary) widen(task.table, task.tableType, row * columns + i, count, scratch);
      else fill(scratch, other, count);
      narrow(scratch, task.out, task.outType, position * columns + i, count);
    }
  }
}

/** The arguments of `embeddingChains`. */
@unmanaged
class EmbeddingChainsTask {
  ids: usize;
  count: usize;
  vocabulary: usize;
  first: usize;
  heads: usize;
  next: usize;
}

/**
 * Builds a linked list of the positions of each row's id, in ascending order. The first position of a row is heads[row] (u32
 * [V]). The position after `position` is next[position] (u32 [count]).
 */
export function embeddingChains(task: EmbeddingChainsTask): void {
  const ids = task.ids;
  const count = task.count;
  const vocabulary = task.vocabulary;
  const first = task.first;
  const heads = task.heads;
  const next = task.next;
  memory.fill(heads, 0xff, vocabulary << 2);
  for (let position = count; position > 0; ) {
    position--;
    const id = load<i32>(ids + (position << 2));
    const row = <usize>id - first;
    if (id < 0 || row >= vocabulary) continue;
    store<u32>(next + (position << 2), load<u32>(heads + (row << 2)));
    store<u32>(heads + (row << 2), <u32>position);
  }
}

/** The arguments of `embeddingBackward`. */
@unmanaged
class EmbeddingBackwardTask {
  grad: usize;
  gradType: u32;
  heads: usize;
  next: usize;
  out: usize;
  outType: u32;
  columns: usize;
}

/** Writes rows [begin, end) of the table's gradient. `scratch` is two buffers of the calling thread. */
export function embeddingBackward(
  task: EmbeddingBackwardTask,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const columns = task.columns;
  const total = scratch + BUFFER;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      fill(total, 0, count);
      let position = load<u32>(task.heads + (row << 2));
      while (position !== NONE) {
        widen(task.grad, task.gradType, <usize>position * columns + i, count, scratch);
        addEach(total, scratch, count);
        position = load<u32>(task.next + ((<usize>position) << 2));
      }
      narrow(total, task.out, task.outType, row * columns + i, count);
    }
  }
}
