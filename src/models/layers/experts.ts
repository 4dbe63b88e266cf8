/** The feed-forward block of a layer with experts. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { add, cast } from "../../functional/elementwise.js";
import { concatenate, reshape, slice } from "../../functional/layout.js";
import { moePermute, moeUnpermute } from "../../functional/moe-permute.js";
import { gather } from "../../functional/rows.js";
import { Module } from "../../modules/module.js";
import { wideOf } from "../../tape/value.js";
import type { Variable } from "../../tape/variable.js";
import type { ExpertsConfig } from "../config/config.js";
import { DenseBlock } from "./dense.js";
import { JoinedBlock } from "./joined.js";
import { ModuleList } from "./module-list.js";
import type { LayerCall, LayerOptions } from "./options.js";
import { Router } from "./router.js";

/**
 * A mixture of experts: adds the results of each token's experts, each times its weight, and the result of the shared block, if
 * there is one. Experts without tokens are not run. The host reads the number of tokens of each expert.
 */
export class ExpertsBlock extends Module {
  static {
    guardReceivers(this);
  }

  readonly #router: Router;
  readonly #experts: readonly (DenseBlock | JoinedBlock)[];
  readonly #shared: DenseBlock | undefined;
  /**
   * The experts that have cached their current quantized weights. The others had no tokens since the last call with
   * `isFirstMicrobatch`.
   */
  readonly #cached = new Set<number>();

  constructor(backend: Backend, { count, expert, router, shared }: ExpertsConfig, options: LayerOptions) {
    const { dtype, random } = options;
    super(backend, { dtype, random });
    this.#router = this.addModule(router.name, new Router(backend, count, router, options));
    const make = (): DenseBlock | JoinedBlock =>
      expert.kind === "dense"
        ? new DenseBlock(backend, expert, options)
        : new JoinedBlock(backend, expert, options);
    this.#experts = this.addModule("experts", new ModuleList(backend, count, make, { dtype, random })).list;
    this.#shared = shared && this.addModule("shared_experts", new DenseBlock(backend, shared, options));
  }

  /** Returns the result [..., hidden] for an input [..., hidden]. */
  forward(x: Variable, call: Pick<LayerCall, "weightUse">): Variable {
    if (call.weightUse.isFirstMicrobatch) this.#cached.clear();
    const { shape } = x;
    const hidden = shape.at(-1) as number;
    const tokens = reshape(x, [shape.slice(0, -1).reduce((product, size) => product * size, 1), hidden]);
    const { probs, topkIndices } = this.#router.forward(tokens);
    const numExperts = this.#experts.length;
    const { output, rowIdMap } = moePermute(tokens, topkIndices, { mapType: "index", numExperts });
    const results = this.#results(output, rowIdMap.tokensPerExpert.dataSync(), call);
    const { dtype } = wideOf("the experts: the input", x.value);
    const mergingProbs = gather(cast(probs, dtype), 1, topkIndices);
    const merged = reshape(moeUnpermute(results, rowIdMap, { mergingProbs }), shape);
    return this.#shared ? add(merged, this.#shared.forward(x, call)) : merged;
  }

  /** The results of the experts. `rows` has the rows of each expert in turn, `counts` their numbers. */
  #results(rows: Variable, counts: Int32Array, call: Pick<LayerCall, "weightUse">): Variable {
    let first = 0;
    const results = this.#experts.flatMap((expert, index) => {
      const count = counts[index] as number;
      first += count;
      return count === 0
        ? []
        : [expert.forward(slice(rows, 0, first - count, first), this.#callOf(index, call))];
    });
    return results.length === 0 ? rows : concatenate(results, 0);
  }

  /** The call of an expert, which caches its weights in the first call that has tokens for it. */
  #callOf(index: number, call: Pick<LayerCall, "weightUse">): Pick<LayerCall, "weightUse"> {
    if (call.weightUse.isFirstMicrobatch === undefined) return call;
    const isFirstMicrobatch = !this.#cached.has(index);
    this.#cached.add(index);
    return { weightUse: { isFirstMicrobatch } };
  }
}
