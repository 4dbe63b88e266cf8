/** The attention of a layer. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { reshape } from "../../functional/layout.js";
import { rotaryEmbedding } from "../../functional/rotary-embedding.js";
import type { DotProductAttention } from "../../modules/dot-product-attention.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import { RMSNorm } from "../../modules/norm.js";
import type { Variable } from "../../tape/variable.js";
import type { AttentionConfig } from "../config/config.js";
import { coreAttention } from "./core-attention.js";
import type { LayerCall, LayerOptions } from "./options.js";

/** Projects queries, keys and values, rotates queries and keys, attends, and projects the result. */
export class SelfAttention extends Module {
  static {
    guardReceivers(this);
  }

  readonly #config: AttentionConfig;
  readonly #projections: readonly [query: Linear, key: Linear, value: Linear];
  readonly #output: Linear;
  readonly #norms: readonly [query: RMSNorm, key: RMSNorm] | undefined;
  readonly #attention: DotProductAttention;

  /** `layerNumber` counts from 1; it is the number of the layer in a cache. */
  constructor(backend: Backend, config: AttentionConfig, layerNumber: number, options: LayerOptions) {
    const { dtype, random, initMethod, eps, hiddenSize, zeroCenteredGamma, own } = options;
    super(backend, { dtype, random });
    const { heads, keyValueHeads, headDim } = config;
    this.#config = config;
    const linear = (name: string, from: number, to: number, bias: boolean): Linear =>
      this.addModule(name, own(new Linear(backend, from, to, { dtype, random, initMethod, bias })));
    const norm = (name: string): RMSNorm =>
      this.addModule(name, own(new RMSNorm(backend, headDim, { dtype, random, eps, zeroCenteredGamma })));
    this.#projections = [
      linear("q_proj", hiddenSize, heads * headDim, config.inputBias),
      linear("k_proj", hiddenSize, keyValueHeads * headDim, config.inputBias),
      linear("v_proj", hiddenSize, keyValueHeads * headDim, config.inputBias),
    ];
    this.#output = linear("o_proj", heads * headDim, hiddenSize, config.outputBias);
    this.#norms = config.headNorms ? [norm("q_norm"), norm("k_norm")] : undefined;
    this.#attention = own(coreAttention(backend, config, layerNumber, { dtype, random }));
    const { softmaxOffset } = this.#attention;
    if (softmaxOffset) this.addParameter("sinks", softmaxOffset);
  }

  /** Returns the result [B, T, hidden] for an input [B, T, hidden]. */
  forward(x: Variable, call: LayerCall): Variable {
    const { heads, keyValueHeads, headDim, rotary } = this.#config;
    const [query, key, value] = this.#projections;
    const [batch, length] = x.shape as readonly [number, number, number];
    const split = (y: Variable, count: number): Variable => reshape(y, [batch, length, count, headDim]);
    const project = (layer: Linear, y: Variable): Variable => layer.forward(y, call.weightUse);
    const { cos, sin, interleaved } = call.angles(rotary);
    const startPositions = call.inferenceParams?.startPositions;
    const rotated = (y: Variable, norm: RMSNorm | undefined): Variable =>
      rotaryEmbedding(norm ? norm.forward(y) : y, cos, sin, { layout: "bshd", startPositions, interleaved });
    const result = this.#attention.forward(
      rotated(split(project(query, x), heads), this.#norms?.[0]),
      rotated(split(project(key, x), keyValueHeads), this.#norms?.[1]),
      split(project(value, x), keyValueHeads),
      call.inferenceParams ? { inferenceParams: call.inferenceParams } : {},
    );
    return project(this.#output, result);
  }
}
