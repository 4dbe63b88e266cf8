/** The queries, keys and values of attention, one matrix for each head, and their layout in the input. */
import { ShapeError } from "../errors.js";
import { swapAxes } from "../ops/layout/layout.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";

/** The sizes of an attention. The input qkv is [batch, length, 3 * heads * depth]. */
export interface Sizes {
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly depth: number;
}

/**
 * The queries q, keys k and values v, each [batch * heads, length, depth], and `stacked`, the tensor that holds all three. q, k
 * and v are views of `stacked` if kernels can read them in place, else copies.
 */
export interface Heads {
  readonly stacked: Tensor<WideDType>;
  readonly q: Tensor<WideDType>;
  readonly k: Tensor<WideDType>;
  readonly v: Tensor<WideDType>;
}

/** Throws `ShapeError` for an input that does not consist of queries, keys and values. */
export function readSizes(shape: Shape, heads: number): Sizes {
  const [batch = 0, length = 0, features = 0] = shape;
  if (shape.length !== 3 || features % (3 * heads) !== 0) {
    throw new ShapeError(
      `dotProductAttention: the input is [${shape}]; with ${heads} heads it is [batch, length, ${3 * heads} * depth]`,
    );
  }
  return { batch, length, heads, depth: features / (3 * heads) };
}

/** Rearranges [batch, length, 3, heads, depth] to [3, batch, heads, length, depth]. */
export function separate(qkv: Tensor<WideDType>, sizes: Sizes): Heads {
  const { batch, length, heads, depth } = sizes;
  const outermost = swapAxes(qkv.reshape([batch * length, 3, heads * depth]), 0, 1);
  return splitHeads(swapAxes(outermost.reshape([3 * batch, length, heads, depth]), 1, 2), sizes);
}

/** The three parts of [3, batch * heads, length, depth]. */
export function splitHeads(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Heads {
  const stacked = x.reshape([3, batch * heads, length, depth]);
  const shape = [batch * heads, length, depth];
  const part = (i: number): Tensor<WideDType> =>
    isViewable(stacked)
      ? stacked.view((i * stacked.size) / 3, shape)
      : stacked.slice((i * stacked.size) / 3, shape);
  return { stacked, q: part(0), k: part(1), v: part(2) };
}

/** Whether the three parts of `stacked` are aligned, so that kernels can read and write them in place. */
function isViewable(stacked: Tensor): boolean {
  return (stacked.byteLength / 3) % VIEW_ALIGNMENT === 0;
}

/** Inverts `separate`. */
export function join({ stacked, q, k, v }: Heads, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  if (!isViewable(stacked)) for (const [i, part] of [q, k, v].entries()) stacked.paste(part, i * part.size);
  const positions = swapAxes(stacked.reshape([3 * batch, heads, length, depth]), 1, 2);
  const concatenated = swapAxes(positions.reshape([3, batch * length, heads * depth]), 0, 1);
  return concatenated.reshape([batch, length, 3 * heads * depth]);
}

/** Rearranges [batch * heads, length, depth] to [batch, length, heads * depth]. */
export function gather(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  return swapAxes(x.reshape([batch, heads, length, depth]), 1, 2).reshape([batch, length, heads * depth]);
}

/** Inverts `gather`. */
export function scatter(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  return swapAxes(x.reshape([batch, length, heads, depth]), 1, 2).reshape([batch * heads, length, depth]);
}
