/** Attention whose queries, keys and values are computed from latent vectors (multi-head latent attention of DeepSeek). */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { concatenate, reshape, slice } from "../../functional/layout.js";
import { rotaryEmbedding } from "../../functional/rotary-embedding.js";
import { expand } from "../../functional/sum.js";
import type { DotProductAttention } from "../../modules/dot-product-attention.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import { RMSNorm } from "../../modules/norm.js";
import type { Variable } from "../../tape/variable.js";
import type { AttentionConfig, LatentConfig } from "../config/config.js";
import { coreAttention } from "./core-attention.js";
import type { LayerCall, LayerOptions } from "./options.js";

/** The constant that the norms of latent vectors add to the mean square. The configuration does not set it. */
const EPS = 1e-6;

/**
 * Projects the input to latent vectors, normalizes them, and projects these to queries, keys and values. Only the last
 * `rotary.dim` elements of each query and key are rotated. In keys, these elements are a projection of the input that all heads
 * share. The cache holds the keys and values of all heads.
 */
export class LatentAttention extends Module {
  static {
    guardReceivers(this);
  }

  readonly #config: AttentionConfig;
  readonly #rank: number;
  readonly #query: (x: Variable, use: LayerCall["weightUse"]) => Variable;
  readonly #compress: Linear;
  readonly #norm: RMSNorm;
  readonly #keysAndValues: Linear;
  readonly #output: Linear;
  readonly #attention: DotProductAttention;

  /** `layerNumber` counts from 1; it is the number of the layer in a cache. */
  constructor(
    backend: Backend,
    config: AttentionConfig & { readonly latent: LatentConfig },
    layerNumber: number,
    options: LayerOptions,
  ) {
    const { dtype, random, initMethod, hiddenSize, own } = options;
    super(backend, { dtype, random });
    const { heads, headDim, valueDim = headDim, rotary, latent, inputBias, outputBias } = config;
    this.#config = config;
    this.#rank = latent.keyValueRank;
    const linear = (name: string, from: number, to: number, bias: boolean): Linear =>
      this.addModule(name, own(new Linear(backend, from, to, { dtype, random, initMethod, bias })));
    const norm = (name: string, width: number): RMSNorm =>
      this.addModule(name, own(new RMSNorm(backend, width, { dtype, random, eps: EPS })));
    if (latent.queryRank === undefined) {
      const query = linear("q_proj", hiddenSize, heads * headDim, false);
      this.#query = (x, use) => query.forward(x, use);
    } else {
      const compress = linear("q_a_proj", hiddenSize, latent.queryRank, inputBias);
      const normed = norm("q_a_layernorm", latent.queryRank);
      const query = linear("q_b_proj", latent.queryRank, heads * headDim, false);
      this.#query = (x, use) => query.forward(normed.forward(compress.forward(x, use)), use);
    }
    this.#compress = linear("kv_a_proj_with_mqa", hiddenSize, this.#rank + rotary.dim, inputBias);
    this.#norm = norm("kv_a_layernorm", this.#rank);
    this.#keysAndValues = linear("kv_b_proj", this.#rank, heads * (headDim - rotary.dim + valueDim), false);
    this.#output = linear("o_proj", heads * valueDim, hiddenSize, outputBias);
    this.#attention = own(coreAttention(backend, config, layerNumber, { dtype, random }));
  }

  /** Returns the result [B, T, hidden] for an input [B, T, hidden]. */
  forward(x: Variable, call: LayerCall): Variable {
    const { heads, headDim, valueDim = headDim, rotary } = this.#config;
    const [batch, length] = x.shape as readonly [number, number, number];
    const plain = headDim - rotary.dim;
    const { weightUse } = call;
    const { cos, sin, interleaved } = call.angles(rotary);
    const startPositions = call.inferenceParams?.startPositions;
    const rotated = (y: Variable): Variable =>
      rotaryEmbedding(y, cos, sin, { layout: "bshd", startPositions, interleaved });
    const query = reshape(this.#query(x, weightUse), [batch, length, heads, headDim]);
    const compressed = this.#compress.forward(x, weightUse);
    const latent = this.#norm.forward(slice(compressed, -1, 0, this.#rank));
    const shared = reshape(slice(compressed, -1, this.#rank), [batch, length, 1, rotary.dim]);
    const both = reshape(this.#keysAndValues.forward(latent, weightUse), [
      batch,
      length,
      heads,
      plain + valueDim,
    ]);
    const result = this.#attention.forward(
      concatenate([slice(query, -1, 0, plain), rotated(slice(query, -1, plain))], -1),
      concatenate(
        [slice(both, -1, 0, plain), expand(rotated(shared), [batch, length, heads, rotary.dim])],
        -1,
      ),
      slice(both, -1, plain),
      call.inferenceParams ? { inferenceParams: call.inferenceParams } : {},
    );
    return this.#output.forward(result, weightUse);
  }
}
