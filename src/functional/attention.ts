/**
 * Softmax attention in high precision. It consists of two batched products with a softmax between them; each head is one item
 * of the batch.
 */
import { ShapeError } from "../errors.js";
import { empty } from "../ops/create.js";
import { batchedGemm } from "../ops/gemm/batched.js";
import { swapAxes } from "../ops/layout/layout.js";
import { softmax, softmaxBackward } from "../ops/rows/softmax.js";
import { boolean, integer, needed, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variable } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import type { Shape, WideDType } from "../tensor/shape.js";
import { type Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";
import { plainDatapath } from "./datapath.js";

/** Options of `dotProductAttention`. */
export interface AttentionOptions {
  /** The number of heads, at least 1. The heads divide the last dimension of the input. */
  readonly heads: number;
  /** Whether each position attends only to itself and earlier positions. Default true. */
  readonly causal?: boolean | undefined;
}

const checkOptions = optionsOf<AttentionOptions>({ heads: needed(integer(1)), causal: boolean });

/** The sizes of an attention. The input qkv is [batch, length, 3 * heads * depth]. */
interface Sizes {
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly depth: number;
}

/**
 * The queries q, keys k and values v, each [batch * heads, length, depth], and `all`, the tensor that holds all three. q, k and
 * v are views of `all` if kernels can read them in place, else copies.
 */
interface Heads {
  readonly all: Tensor<WideDType>;
  readonly q: Tensor<WideDType>;
  readonly k: Tensor<WideDType>;
  readonly v: Tensor<WideDType>;
}

/**
 * Returns softmax(q·kᵀ / sqrt(depth))·v of each head as [batch, length, heads * depth]. The last dimension of `qkv` [batch,
 * length, 3 * heads * depth] holds the queries, then the keys, then the values. The scores are f32. The probabilities have the
 * dtype of qkv.
 *
 * @throws `ShapeError` if the last dimension is not 3 * heads * depth, `DTypeError` for a tensor that is not f32, bf16 or f16,
 * `ArgumentError` for an invalid option value, `DisposedError` for a disposed tensor.
 */
export function dotProductAttention(input: VariableLike, options: AttentionOptions): Variable {
  checkOptions("dotProductAttention", options);
  const { heads, causal = true } = options;
  const source = variable(input);
  const sizes = sizesOf(source.shape, heads);
  const scale = Math.fround(1 / Math.sqrt(sizes.depth));
  return differentiableOne([source], () => {
    const qkv = wideOf("dotProductAttention: the input", source.value);
    const { dtype } = qkv;
    const datapath = plainDatapath(qkv.backend, dtype);
    const parts = separate(qkv, sizes);
    const { all, q, k, v } = parts;
    const scores = batchedGemm({ a: k, b: q, layout: "TN", outDtype: "f32", datapath }).out;
    const probabilities = softmax(scores, { causal, scale, outDtype: dtype });
    const { out } = batchedGemm({ a: v, b: probabilities, layout: "NN", outDtype: dtype, datapath });
    return {
      result: gather(wideOf("attention", out), sizes),
      saved: [all, q, k, v, probabilities],
      backward: (grad) => {
        const dout = scatter(wideOf("dotProductAttention: the gradient", grad), sizes);
        const grads = partsOf(empty(qkv.backend, dtype, all.shape), sizes);
        batchedGemm({ a: dout, b: probabilities, layout: "NT", out: grads.v, datapath });
        const dp = batchedGemm({ a: v, b: dout, layout: "TN", outDtype: "f32", datapath }).out;
        const ds = softmaxBackward(dp, probabilities, { causal, scale, outDtype: dtype });
        batchedGemm({ a: k, b: ds, layout: "NN", out: grads.q, datapath });
        batchedGemm({ a: q, b: ds, layout: "NT", out: grads.k, datapath });
        return [join(grads, sizes)];
      },
    };
  });
}

function sizesOf(shape: Shape, heads: number): Sizes {
  const [batch = 0, length = 0, features = 0] = shape;
  if (shape.length !== 3 || features % (3 * heads) !== 0) {
    throw new ShapeError(
      `dotProductAttention: the input is [${shape}]; with ${heads} heads it is [batch, length, ${3 * heads} * depth]`,
    );
  }
  return { batch, length, heads, depth: features / (3 * heads) };
}

/** Rearranges [batch, length, 3, heads, depth] to [3, batch, heads, length, depth]. */
function separate(qkv: Tensor<WideDType>, sizes: Sizes): Heads {
  const { batch, length, heads, depth } = sizes;
  const outermost = swapAxes(qkv.reshape([batch * length, 3, heads * depth]), 0, 1);
  return partsOf(swapAxes(outermost.reshape([3 * batch, length, heads, depth]), 1, 2), sizes);
}

function partsOf(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Heads {
  const all = x.reshape([3, batch * heads, length, depth]);
  const shape = [batch * heads, length, depth];
  const part = (i: number): Tensor<WideDType> =>
    isViewable(all) ? all.view((i * all.size) / 3, shape) : all.slice((i * all.size) / 3, shape);
  return { all, q: part(0), k: part(1), v: part(2) };
}

/** Whether the three parts of `all` are aligned, so that kernels can read and write them in place. */
function isViewable(all: Tensor): boolean {
  return (all.byteLength / 3) % VIEW_ALIGNMENT === 0;
}

/** Inverts `separate`. */
function join({ all, q, k, v }: Heads, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  if (!isViewable(all)) for (const [i, part] of [q, k, v].entries()) all.paste(part, i * part.size);
  const positions = swapAxes(all.reshape([3 * batch, heads, length, depth]), 1, 2);
  const joined = swapAxes(positions.reshape([3, batch * length, heads * depth]), 0, 1);
  return joined.reshape([batch, length, 3 * heads * depth]);
}

/** Rearranges [batch * heads, length, depth] to [batch, length, heads * depth]. */
function gather(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  return swapAxes(x.reshape([batch, heads, length, depth]), 1, 2).reshape([batch, length, heads * depth]);
}

/** Inverts `gather`. */
function scatter(x: Tensor<WideDType>, { batch, length, heads, depth }: Sizes): Tensor<WideDType> {
  return swapAxes(x.reshape([batch, length, heads, depth]), 1, 2).reshape([batch * heads, length, depth]);
}
