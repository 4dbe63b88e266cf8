/** The router of a layer with experts. */
import { autocast } from "../../autocast.js";
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { cast } from "../../functional/elementwise.js";
import { fusedTopkWithScoreFunction, type RouterResult } from "../../functional/router.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import { constantInit, newParameter, type Parameter } from "../../modules/parameter.js";
import type { Variable } from "../../tape/variable.js";
import { requireF32 } from "../../tensor/require.js";
import type { RouterConfig } from "../config/config.js";
import type { LayerOptions } from "./options.js";

/**
 * Chooses experts by a product in high precision, also under a recipe. Among experts with equal scores, the lowest index is
 * chosen.
 */
export class Router extends Module {
  static {
    guardReceivers(this);
  }

  readonly #config: RouterConfig;
  readonly #linear: Linear;
  readonly #correction: Parameter | undefined;

  constructor(backend: Backend, experts: number, config: RouterConfig, options: LayerOptions) {
    const { random, initMethod, hiddenSize, own } = options;
    const { dtype = options.dtype, bias, correction } = config;
    super(backend, { dtype, random });
    this.#config = config;
    this.#linear = own(new Linear(backend, hiddenSize, experts, { dtype, random, initMethod, bias }));
    this.addParameter("weight", this.#linear.weight);
    if (this.#linear.bias) this.addParameter("bias", this.#linear.bias);
    if (correction)
      this.#correction = this.addParameter(
        "e_score_correction_bias",
        newParameter(backend, [experts], constantInit(0), { dtype: "f32", random }),
      );
  }

  /** Returns the experts of tokens [T, hidden] and their weights, in the dtype of the router. */
  forward(tokens: Variable): RouterResult {
    const { topk, scoreFunction, usePreSoftmax, scalingFactor, groups } = this.#config;
    const logits = autocast({ enabled: false }, () => this.#linear.forward(cast(tokens, this.dtype)));
    const bias = this.#correction;
    return fusedTopkWithScoreFunction(logits, {
      ...{ topk, scoreFunction, usePreSoftmax, scalingFactor },
      ...(groups ? { numGroups: groups.count, groupTopk: groups.chosen } : {}),
      expertBias: bias && requireF32("the router", "its bias", bias.tensor),
    });
  }
}
