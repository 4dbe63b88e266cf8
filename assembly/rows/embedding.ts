// Rows of a table [V, D], D = `columns`, by the ids of positions, and the gradient of the table: row v is the sum of the
// gradient's rows whose id is v, positions ascending from +0 in f32, rounded once. An id outside [0, V) gives a row of
// NaN, and no gradient.
import { addEach, fill } from "../core/chunk";
import { BUFFER, CHUNK } from "../core/scratch";
import { narrow, widen } from "../core/wide";

/** Ends a chain of positions. */
const NONE: u32 = 0xffffffff;

/** Writes the rows of the positions [begin, end). `ids` are i32; `scratch` is the calling thread's own. */
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

/** Chains the positions of each id, ascending: from heads[id], u32 [V], by next[position], u32 [count]. */
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

/** Writes the rows [begin, end) of the table's gradient. `scratch` is two buffers of the calling thread's own. */
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
