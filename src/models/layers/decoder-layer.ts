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
import type { LayerCall, LayerOptions } from "./options.js";
import { SelfAttention } from "./self-attention.js";

/** Adds attention, and then a feed-forward block, to its input. Each has a norm in front of it. */
export class DecoderLayer extends Module {
  static {
    guardReceivers(this);
  }

  readonly #attention: SelfAttention;
  readonly #feedForward: DenseBlock | ExpertsBlock;
  readonly #norms: readonly [attention: RMSNorm, feedForward: RMSNorm];

  /** `layerNumber` counts from 1. */
  constructor(backend: Backend, config: DecoderLayerConfig, layerNumber: number, options: LayerOptions) {
    const { dtype, random, eps, hiddenSize } = options;
    super(backend, { dtype, random });
    const norm = (name: string): RMSNorm =>
      this.addModule(name, new RMSNorm(backend, hiddenSize, { dtype, random, eps }));
    this.#attention = this.addModule(
      "self_attn",
      new SelfAttention(backend, config.attention, layerNumber, options),
    );
    this.#feedForward = this.addModule("mlp", feedForwardBlock(backend, config.feedForward, options));
    this.#norms = [norm("input_layernorm"), norm("post_attention_layernorm")];
  }

  /** Returns the result [B, T, hidden] for an input [B, T, hidden]. */
  forward(x: Variable, call: LayerCall): Variable {
    const [attentionNorm, feedForwardNorm] = this.#norms;
    return composed(() => {
      const attended = add(x, this.#attention.forward(attentionNorm.forward(x), call));
      return [add(attended, this.#feedForward.forward(feedForwardNorm.forward(attended)))];
    })[0];
  }
}

function feedForwardBlock(backend: Backend, config: FeedForwardConfig, options: LayerOptions) {
  return config.kind === "dense"
    ? new DenseBlock(backend, config, options)
    : new ExpertsBlock(backend, config, options);
}
