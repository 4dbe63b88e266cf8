/** One layer of a model. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { add } from "../../functional/elementwise.js";
import { Module } from "../../modules/module.js";
import { RMSNorm } from "../../modules/norm.js";
import { composed } from "../../tape/composed.js";
import type { Variable } from "../../tape/variable.js";
import type { DecoderLayerConfig, FeedForwardConfig } from "../config/config.js";
import { DenseBlock } from "./dense.js";
import { ExpertsBlock } from "./experts.js";
import { LatentAttention } from "./latent-attention.js";
import type { LayerCall, LayerOptions } from "./options.js";
import { SelfAttention } from "./self-attention.js";

/**
 * Adds attention, and then a feed-forward block, to its input. A norm precedes each of the two, and another one may follow it.
 * The norm before the block has the name `post_attention_layernorm` or, if norms follow, `pre_feedforward_layernorm`.
 */
export class DecoderLayer extends Module {
  static {
    guardReceivers(this);
  }

  readonly #attention: SelfAttention | LatentAttention;
  readonly #feedForward: DenseBlock | ExpertsBlock;
  readonly #norms: readonly [attention: RMSNorm, feedForward: RMSNorm];
  readonly #postNorms: readonly [attention: RMSNorm, feedForward: RMSNorm] | undefined;

  /** `layerNumber` counts from 1. */
  constructor(backend: Backend, config: DecoderLayerConfig, layerNumber: number, options: LayerOptions) {
    const { dtype, random, eps, hiddenSize, zeroCenteredGamma, own } = options;
    const { attention, feedForward, postNorms } = config;
    super(backend, { dtype, random });
    const norm = (name: string): RMSNorm =>
      this.addModule(name, own(new RMSNorm(backend, hiddenSize, { dtype, random, eps, zeroCenteredGamma })));
    const { latent } = attention;
    this.#attention = this.addModule(
      "self_attn",
      latent
        ? new LatentAttention(backend, { ...attention, latent }, layerNumber, options)
        : new SelfAttention(backend, attention, layerNumber, options),
    );
    this.#feedForward = this.addModule("mlp", feedForwardBlock(backend, feedForward, options));
    if (postNorms) {
      this.#norms = [norm("input_layernorm"), norm("pre_feedforward_layernorm")];
      this.#postNorms = [norm("post_attention_layernorm"), norm("post_feedforward_layernorm")];
    } else this.#norms = [norm("input_layernorm"), norm("post_attention_layernorm")];
  }

  /** Returns the result [B, T, hidden] for an input [B, T, hidden]. */
  forward(x: Variable, call: LayerCall): Variable {
    const [attentionNorm, feedForwardNorm] = this.#norms;
    const [afterAttention, afterFeedForward] = this.#postNorms ?? [];
    const normed = (y: Variable, norm: RMSNorm | undefined): Variable => (norm ? norm.forward(y) : y);
    return composed(() => {
      const attention = this.#attention.forward(attentionNorm.forward(x), call);
      const attended = add(x, normed(attention, afterAttention));
      const block = this.#feedForward.forward(feedForwardNorm.forward(attended), call);
      return [add(attended, normed(block, afterFeedForward))];
    })[0];
  }
}

function feedForwardBlock(backend: Backend, config: FeedForwardConfig, options: LayerOptions) {
  return config.kind === "dense"
    ? new DenseBlock(backend, config, options)
    : new ExpertsBlock(backend, config, options);
}
