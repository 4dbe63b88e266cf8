/**
 * Softmax attention in high precision: two batched products with a softmax between them. Each head is one item of the batch.
 */
import type { ProcessGroup } from "../collectives/group.js";
import { empty } from "../ops/create.js";
import { batchedGemm } from "../ops/gemm/batched.js";
import { softmax, softmaxBackward } from "../ops/rows/softmax.js";
import { boolean, integer, needed, optionsOf } from "../options.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { ContextKeys } from "./attention-context.js";
import { gather, join, partsOf, scatter, separate, sizesOf } from "./attention-heads.js";
import { plainDatapath } from "./datapath.js";
import { groupOf, processGroup } from "./ranks.js";

/** Options of `dotProductAttention`. */
export interface AttentionOptions {
  /** The number of heads, at least 1. The heads divide the last dimension of the input. */
  readonly heads: number;
  /** Whether each position attends only to itself and earlier positions. Default true. */
  readonly causal?: boolean | undefined;
  /**
   * The ranks among which the positions are divided evenly, in order of ranks (context parallelism). Keys and values are
   * gathered. Default: this rank has all positions.
   */
  readonly group?: ProcessGroup | undefined;
}

const checkOptions = optionsOf<AttentionOptions>({
  heads: needed(integer(1)),
  causal: boolean,
  group: processGroup,
});

/**
 * Returns softmax(q·kᵀ / sqrt(depth))·v of each head as [batch, length, heads * depth]. The last dimension of `qkv` [batch,
 * length, 3 * heads * depth] holds the queries, then the keys, then the values. The scores are f32. The probabilities have the
 * dtype of qkv.
 *
 * With `group`, `length` is the number of this rank's positions, and the causal mask takes the positions of lower ranks into
 * account. If all values are finite, the result and the gradient of the queries have the same bits as on a single rank. The
 * gradients of keys and values are computed on each rank, rounded to the dtype of qkv, and summed by the algorithm `ranked`.
 *
 * @throws `ShapeError` if the last dimension is not 3 * heads * depth, `DTypeError` for a tensor that is not f32, bf16 or f16,
 * `ArgumentError` for an invalid option value and a group on another backend, `DisposedError` for a disposed tensor or group,
 * `DistributedError` for a group that has failed.
 */
export function dotProductAttention(input: VariableLike, options: AttentionOptions): Variable {
  const ownOptions = checkOptions("dotProductAttention", options);
  const { heads, causal = true } = ownOptions;
  const source = variableOf("dotProductAttention", "input", input);
  const group = groupOf("dotProductAttention", source.backend, ownOptions);
  const sizes = sizesOf(source.shape, heads);
  const scale = Math.fround(1 / Math.sqrt(sizes.depth));
  return differentiableOne([source], () => {
    const qkv = wideOf("dotProductAttention: the input", source.value);
    const { dtype } = qkv;
    const datapath = plainDatapath(qkv.backend, dtype);
    const parts = separate(qkv, sizes);
    const { all, q, k, v } = parts;
    const context = group && new ContextKeys(group, sizes, causal);
    const keys = context?.gather(parts) ?? parts;
    const scores = batchedGemm({ a: keys.k, b: q, layout: "TN", outDtype: "f32", datapath }).out;
    const probabilities = softmax(scores, { causal, scale, outDtype: dtype });
    const { out } = batchedGemm({ a: keys.v, b: probabilities, layout: "NN", outDtype: dtype, datapath });
    return {
      result: gather(wideOf("attention", out), sizes),
      saved: [all, q, k, v, probabilities],
      backward: (grad) => {
        const dout = scatter(wideOf("dotProductAttention: the gradient", grad), sizes);
        const grads = partsOf(empty(qkv.backend, dtype, all.shape), sizes);
        const keys = context?.gather(parts) ?? parts;
        const keyGrads = context?.emptyLike(keys) ?? grads;
        batchedGemm({ a: dout, b: probabilities, layout: "NT", out: keyGrads.v, datapath });
        const dp = batchedGemm({ a: keys.v, b: dout, layout: "TN", outDtype: "f32", datapath }).out;
        const ds = softmaxBackward(dp, probabilities, { causal, scale, outDtype: dtype });
        batchedGemm({ a: keys.k, b: ds, layout: "NN", out: grads.q, datapath });
        batchedGemm({ a: q, b: ds, layout: "NT", out: keyGrads.k, datapath });
        context?.reduce(keyGrads, grads);
        return [join(grads, sizes)];
      },
    };
  });
}
