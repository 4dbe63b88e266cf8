/** Copies between tensors of heads, as the unfused attention of TransformerEngine makes them. All tensors hold bf16 bits. */
import type { Shape } from "../../../../../src/tensor/shape.js";

/** A bf16 tensor on the host. */
export interface Bf16 {
  readonly data: Uint16Array;
  readonly shape: Shape;
}

/** A matrix for each head: [batch * heads, rows, columns]. */
export type Batch = Bf16 & { readonly shape: readonly [number, number, number] };

const sizes = ({ shape }: Bf16): readonly [number, number, number, number] =>
  shape as readonly [number, number, number, number];

/** [B, S, G, D] as [B * H, S, D], each of G groups repeated for H / G heads. */
export function toBatch(x: Bf16, heads: number): Batch {
  const [batch, rows, groups, width] = sizes(x);
  const data = new Uint16Array(batch * heads * rows * width);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let s = 0; s < rows; s++) {
        const group = Math.floor((h * groups) / heads);
        const source = ((b * rows + s) * groups + group) * width;
        data.set(x.data.subarray(source, source + width), ((b * heads + h) * rows + s) * width);
      }
  return { data, shape: [batch * heads, rows, width] };
}

/** The inverse of `toBatch` for one group for each head. */
export function fromBatch({ data, shape: [count, rows, width] }: Batch, batch: number): Bf16 {
  const heads = count / batch;
  const output = new Uint16Array(data.length);
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let s = 0; s < rows; s++) {
        const source = ((b * heads + h) * rows + s) * width;
        output.set(data.subarray(source, source + width), ((b * rows + s) * heads + h) * width);
      }
  return { data: output, shape: [batch, rows, heads, width] };
}

/** [B, H, S, T] as [B * H, S, T]. */
export function matrices(x: Bf16): Batch {
  const [batch, heads, rows, columns] = sizes(x);
  return { data: x.data, shape: [batch * heads, rows, columns] };
}

export function transpose({ data, shape: [count, rows, columns] }: Batch): Batch {
  const out = new Uint16Array(data.length);
  for (let n = 0; n < count; n++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++)
        out[(n * columns + j) * rows + i] = data[(n * rows + i) * columns + j] as number;
  return { data: out, shape: [count, columns, rows] };
}

/** The position of each head in the rows of qkv: the queries of a group, then its key, then its value. */
function* headColumns(
  heads: number,
  groups: number,
): Generator<readonly [which: "q" | "k" | "v", head: number, column: number]> {
  const perGroup = heads / groups;
  for (let g = 0; g < groups; g++) {
    const firstColumn = g * (perGroup + 2);
    for (let i = 0; i < perGroup; i++) yield ["q", g * perGroup + i, firstColumn + i];
    yield ["k", g, firstColumn + perGroup];
    yield ["v", g, firstColumn + perGroup + 1];
  }
}

/** Splits rows [B * S, (H + 2 G) * D] into q [B, S, H, D] and k and v [B, S, G, D], which have these shapes. */
export function splitHeads(qkv: Uint16Array, shapes: Readonly<Record<"q" | "k" | "v", Shape>>) {
  const [batch = 0, rows = 0, heads = 0, width = 0] = shapes.q;
  const groups = shapes.k[2] ?? 0;
  const columns = heads + 2 * groups;
  const out = {
    q: new Uint16Array(batch * rows * heads * width),
    k: new Uint16Array(batch * rows * groups * width),
    v: new Uint16Array(batch * rows * groups * width),
  };
  for (let row = 0; row < batch * rows; row++)
    for (const [projection, head, column] of headColumns(heads, groups)) {
      const source = (row * columns + column) * width;
      const target = (row * (projection === "q" ? heads : groups) + head) * width;
      out[projection].set(qkv.subarray(source, source + width), target);
    }
  return out;
}

/** The inverse of `splitHeads`. */
export function joinHeads(projections: Readonly<Record<"q" | "k" | "v", Bf16>>): Uint16Array {
  const [batch, rows, heads, width] = sizes(projections.q);
  const groups = sizes(projections.k)[2];
  const columns = heads + 2 * groups;
  const out = new Uint16Array(batch * rows * columns * width);
  for (let row = 0; row < batch * rows; row++)
    for (const [projection, head, column] of headColumns(heads, groups)) {
      const source = (row * (projection === "q" ? heads : groups) + head) * width;
      out.set(
        projections[projection].data.subarray(source, source + width),
        (row * columns + column) * width,
      );
    }
  return out;
}
