/** The feed-forward block of an expert of gpt-oss. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { gated } from "../../functional/elementwise.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import type { Variable } from "../../tape/variable.js";
import type { JoinedConfig } from "../config/config.js";
import type { LayerCall, LayerOptions } from "./options.js";

/** Computes down(swiglu(gateUp(x))) with the clamped swiglu, whose gate is the first half of gateUp. */
export class JoinedBlock extends Module {
  static {
    guardReceivers(this);
  }

  readonly #gateUp: Linear;
  readonly #down: Linear;
  readonly #clamp: JoinedConfig["clamp"];

  constructor(backend: Backend, config: JoinedConfig, options: LayerOptions) {
    const { dtype, random, initMethod, hiddenSize, own } = options;
    super(backend, { dtype, random });
    const { intermediateSize, clamp } = config;
    const linear = (name: string, from: number, to: number): Linear =>
      this.addModule(name, own(new Linear(backend, from, to, { dtype, random, initMethod, bias: true })));
    this.#gateUp = linear("gate_up_proj", hiddenSize, 2 * intermediateSize);
    this.#down = linear("down_proj", intermediateSize, hiddenSize);
    this.#clamp = clamp;
  }

  /** Returns the result [..., hidden] for an input [..., hidden]. */
  forward(x: Variable, { weightUse }: Pick<LayerCall, "weightUse">): Variable {
    const hidden = gated(this.#gateUp.forward(x, weightUse), "silu", { clamp: this.#clamp });
    return this.#down.forward(hidden, weightUse);
  }
}
