/** The feed-forward block of a layer. */
import type { Backend } from "../../backends/backend.js";
import { guardReceivers } from "../../brand.js";
import { activation, multiply } from "../../functional/elementwise.js";
import { Linear } from "../../modules/linear.js";
import { Module } from "../../modules/module.js";
import type { Variable } from "../../tape/variable.js";
import type { DenseConfig } from "../config/config.js";
import type { LayerCall, LayerOptions } from "./options.js";

/** Computes down(activation(gate(x)) * up(x)). */
export class DenseBlock extends Module {
  static {
    guardReceivers(this);
  }

  readonly #gate: Linear;
  readonly #up: Linear;
  readonly #down: Linear;
  readonly #activation: DenseConfig["activation"];

  constructor(backend: Backend, config: DenseConfig, options: LayerOptions) {
    const { dtype, random, initMethod, hiddenSize, own } = options;
    super(backend, { dtype, random });
    const { intermediateSize, bias } = config;
    const linear = (name: string, from: number, to: number): Linear =>
      this.addModule(name, own(new Linear(backend, from, to, { dtype, random, initMethod, bias })));
    this.#gate = linear("gate_proj", hiddenSize, intermediateSize);
    this.#up = linear("up_proj", hiddenSize, intermediateSize);
    this.#down = linear("down_proj", intermediateSize, hiddenSize);
    this.#activation = config.activation;
  }

  /** Returns the result [..., hidden] for an input [..., hidden]. */
  forward(x: Variable, { weightUse }: Pick<LayerCall, "weightUse">): Variable {
    const gate = activation(this.#gate.forward(x, weightUse), this.#activation);
    return this.#down.forward(multiply(gate, this.#up.forward(x, weightUse)), weightUse);
  }
}
