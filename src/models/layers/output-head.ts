/** The output layer of a model, which computes logits. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { plainDatapath } from "../../functional/datapath.js";
import { dgradOf, wgradOf } from "../../modules/linear/products.js";
import { Module, type ModuleOptions } from "../../modules/module.js";
import type { Parameter } from "../../modules/parameter.js";
import { castTo } from "../../ops/cast/cast.js";
import { gemm } from "../../ops/gemm/gemm.js";
import { differentiableOne } from "../../tape/differentiable.js";
import { transientValue } from "../../tape/uses.js";
import { wideOf } from "../../tape/value.js";
import type { Variable } from "../../tape/variable.js";

/** Multiplies by `weight` [vocabulary, hidden], which may be the embedding table, and returns f32. */
export class OutputHead extends Module {
  static {
    guardReceivers(this);
  }

  readonly #weight: Parameter;

  constructor(backend: Backend, weight: Parameter, options: ModuleOptions) {
    super(backend, options);
    this.#weight = this.addParameter("weight", weight);
  }

  /** Returns logits f32 [..., vocabulary] for an input [..., hidden]. The product is in high precision under every recipe. */
  forward(x: Variable): Variable {
    const weight = this.#weight;
    // read again in the backward pass, because a sharded weight is freed after each
    const currentWeight = () => wideOf("the output layer: the weight", transientValue(weight));
    return differentiableOne([x, weight], () => {
      const input = wideOf("the output layer: the input", x.value);
      const w = currentWeight();
      const { dtype, backend } = input;
      const datapath = plainDatapath(backend, dtype);
      return {
        result: wideOf("the output layer", gemm({ x: input, w, datapath, outDtype: "f32" }).out),
        backward: (grad) => {
          const dy = castTo(wideOf("the output layer: the gradient", grad), dtype);
          const products = { datapath, dtype, weight, fuseWgradAccumulation: false };
          return [
            x.requiresGrad ? dgradOf(currentWeight(), dy, products) : undefined,
            weight.requiresGrad ? wgradOf(input, dy, products) : undefined,
          ];
        },
      };
    });
  }
}
