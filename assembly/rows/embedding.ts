// Embedding lookup in a table [V, D], D = `columns`, and the gradient of the table: row v is the sum of the gradient
// rows whose id is v, added in ascending order of positions from +0 in f32, and rounded once. An id outside [0, V)
// gives a row of NaN and contributes to no gradient.
import { addEach, fill } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";

/** Marks the end of a linked list of positions. */
const NONE: u32 = 0xffffffff;

/** Writes the rows of positions [begin, end). `ids` are i32; `scratch` belongs to the calling thread. */
export function embedding(
  table: usize,
  tableType: u32,
  ids: usize,
  out: usize,
  outType: u32,
  vocabulary: usize,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  for (let position = begin; position < end; position++) {
    const id = <usize>load<i32>(ids + (position << 2));
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      if (id < vocabulary) widen(table, tableType, id * columns + i, count, scratch);
      else fill(scratch, NaN, count);
      narrow(scratch, out, outType, position * columns + i, count);
    }
  }
}

/**
 * Links the positions of each id in ascending order: the first is heads[id], u32 [V], and the following ones are
 * next[position], u32 [count].
 */
export function embeddingChains(
  ids: usize,
  count: usize,
  vocabulary: usize,
  heads: usize,
  next: usize,
): void {
  memory.fill(heads, 0xff, vocabulary << 2);
  for (let position = count; position > 0; ) {
    position--;
    const id = <usize>load<i32>(ids + (position << 2));
    if (id >= vocabulary) continue;
    store<u32>(next + (position << 2), load<u32>(heads + (id << 2)));
    store<u32>(heads + (id << 2), <u32>position);
  }
}

/** Writes rows [begin, end) of the table's gradient. `scratch` is two buffers of the calling thread. */
export function embeddingBackward(
  grad: usize,
  gradType: u32,
  heads: usize,
  next: usize,
  out: usize,
  outType: u32,
  columns: usize,
  scratch: usize,
  begin: usize,
  end: usize,
): void {
  const total = scratch + BUFFER;
  for (let row = begin; row < end; row++) {
    for (let i: usize = 0; i < columns; i += CHUNK) {
      const count = min(CHUNK, columns - i);
      fill(total, 0, count);
      let position = load<u32>(heads + (row << 2));
      while (position !== NONE) {
        widen(grad, gradType, <usize>position * columns + i, count, scratch);
        addEach(total, scratch, count);
        position = load<u32>(next + ((<usize>position) << 2));
      }
      narrow(total, out, outType, row * columns + i, count);
    }
  }
}
