/** A mixture of experts. */
import { autocast } from "../../autocast.js";
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { cast } from "../../functional/elementwise.js";
import { concatenate, reshape, slice } from "../../functional/layout.js";
import { moePermute, moeUnpermute } from "../../functional/moe-permute.js";
import { fusedTopkWithScoreFunction } from "../../functional/router.js";
import { gather } from "../../functional/rows.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import type { Variable } from "../../tape/variable.js";
import { elementCount } from "../../tensor/shape.js";
import type { ExpertsConfig } from "../config/config.js";
import { DenseBlock } from "./dense.js";
import { ModuleList } from "./module-list.js";
import type { LayerOptions } from "./options.js";

/**
 * Sends each token to some experts, and adds their results, each times its probability. The numbers of tokens are read on the
 * host. The router computes in high precision under every recipe.
 */
export class ExpertsBlock extends Module {
  static {
    guardReceivers(this);
  }

  readonly #config: ExpertsConfig;
  readonly #router: Linear;
  readonly #experts: readonly DenseBlock[];

  constructor(backend: Backend, config: ExpertsConfig, options: LayerOptions) {
    const { dtype, random, initMethod, hiddenSize } = options;
    super(backend, { dtype, random });
    const { count, expert } = config;
    this.#config = config;
    this.#router = this.addModule(
      "gate",
      new Linear(backend, hiddenSize, count, { dtype, random, initMethod, bias: false }),
    );
    const make = (): DenseBlock => new DenseBlock(backend, expert, options);
    const experts = new ModuleList(backend, count, make, { dtype, random });
    this.#experts = this.addModule("experts", experts).list;
  }

  /** Returns the result [..., hidden] for an input [..., hidden]. */
  forward(x: Variable): Variable {
    const { count, perToken: topk, normalized } = this.#config;
    const hidden = x.shape.at(-1) as number;
    const tokens = reshape(x, [elementCount(x.shape.slice(0, -1)), hidden]);
    const logits = autocast({ enabled: false }, () => this.#router.forward(tokens));
    // probabilities that are divided by their sum are the softmax over the chosen experts
    const { probs, topkIndices } = fusedTopkWithScoreFunction(logits, { topk, usePreSoftmax: !normalized });
    const { output, rowIdMap } = moePermute(tokens, topkIndices, { mapType: "index", numExperts: count });
    let end = 0;
    const results = Array.from(rowIdMap.tokensPerExpert.dataSync()).flatMap((rows, expert) => {
      const first = end;
      end += rows;
      return rows === 0 ? [] : [this.#experts[expert]?.forward(slice(output, 0, first, end)) as Variable];
    });
    const merged = moeUnpermute(results.length === 0 ? output : concatenate(results), rowIdMap, {
      mergingProbs: gather(cast(probs, this.dtype), 1, topkIndices),
    });
    return reshape(merged, x.shape);
  }
}
