/**
 * Softmax attention in high precision: two batched products with a softmax between them. Each head is one item of the batch.
 */
import { empty } from "../ops/create.js";
import { batchedGemm } from "../ops/gemm/batched.js";
import { softmax, softmaxBackward } from "../ops/rows/softmax.js";
import { boolean, integer, needed, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { gather, join, readSizes, scatter, separate, splitHeads } from "./attention-heads.js";
import { plainDatapath } from "./datapath.js";

/** Options of `dotProductAttention`. */
export interface AttentionOptions {
  /** The number of heads, at least 1. The heads divide the last dimension of the input. */
  readonly heads: number;
  /** Whether each position attends only to itself and earlier positions. Default true. */
  readonly causal?: boolean | undefined;
}

const checkOptions = optionsOf<AttentionOptions>({
  heads: needed(integer(1)),
  causal: boolean,
});

/**
 * Returns softmax(q·kᵀ / sqrt(depth))·v of each head as [batch, length, heads * depth]. The last dimension of `qkv` [batch,
 * length, 3 * heads * depth] holds the queries, then the keys, then the values. The scores are f32. The probabilities have the
 * dtype of qkv.
 *
 * @throws `ShapeError` if the last dimension is not 3 * heads * depth, `DTypeError` for a tensor that is not f32, bf16 or f16,
 * `ArgumentError` for an invalid option value, `DisposedError` for a disposed tensor.
 */
export function dotProductAttention(input: VariableLike, options: AttentionOptions): Variable {
  const ownOptions = checkOptions("dotProductAttention", options);
  const { heads, causal = true } = ownOptions;
  const source = variableOf("dotProductAttention", "input", input);
  const sizes = readSizes(source.shape, heads);
  const scale = Math.fround(1 / Math.sqrt(sizes.depth));
  return differentiableOne([source], () => {
    const qkv = wideOf("dotProductAttention: the input", source.value);
    const { dtype } = qkv;
    const datapath = plainDatapath(qkv.backend, dtype);
    const projections = separate(qkv, sizes);
    const { stacked, q, k, v } = projections;
    const scores = batchedGemm({ a: k, b: q, layout: "TN", outDtype: "f32", datapath }).out;
    const probabilities = softmax(scores, { causal, scale, outDtype: dtype });
    const { out } = batchedGemm({ a: v, b: probabilities, layout: "NN", outDtype: dtype, datapath });
    return {
      result: gather(wideOf("attention", out), sizes),
      saved: [stacked, q, k, v, probabilities],
      backward: (grad) => {
        const dout = scatter(wideOf("dotProductAttention: the gradient", grad), sizes);
        const grads = splitHeads(empty(qkv.backend, dtype, stacked.shape), sizes);
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
