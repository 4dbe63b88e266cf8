/** A module that applies layers in sequence. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { ArgumentError } from "../errors.js";
import { describe } from "../options.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { Scope } from "../tensor/scope.js";
import { checkLinearCall, type LinearCall } from "./linear/parts.js";
import { Module } from "./module.js";

/** A layer of `Sequential`: a module, or a function without parameters, with one input and one result. */
export type Layer =
  | (Module & { forward(x: VariableLike, call?: LinearCall): Variable })
  | ((x: Variable) => Variable);

/**
 * Applies layers in order. Modules among them are submodules named by index.
 *
 * @throws `ArgumentError` for a layer that is neither a module with `forward` nor a function, `DisposedError` for a disposed
 * backend.
 */
export class Sequential extends Module {
  static {
    guardReceivers(this);
  }

  readonly #layers: readonly Layer[];

  constructor(backend: Backend, ...layers: readonly Layer[]) {
    super(backend);
    this.#layers = layers;
    for (const [i, layer] of layers.entries()) {
      if (typeof (layer instanceof Module ? layer.forward : layer) !== "function")
        throw new ArgumentError(
          `Sequential: layers[${i}] is ${describe(layer)}; it must be a module with forward, or a function; give each layer as an argument`,
        );
      if (layer instanceof Module) this.addModule(String(i), layer);
    }
  }

  /**
   * Applies the layers in order to `x` and returns the last result. Every module receives `call`, which says how cached weights
   * are used. If a layer throws, the results of the others are disposed of.
   *
   * @throws `ArgumentError`, `DTypeError`, `ShapeError` and `DisposedError` as the layers do.
   */
  forward(
    x: VariableLike,
    call: Pick<LinearCall, "isFirstMicrobatch" | "skipFp8WeightUpdate"> = {},
  ): Variable {
    let value = variableOf("Sequential", "x", x);
    const ownCall = checkLinearCall("Sequential", call);
    // frees the results of earlier layers if a later one throws
    using scope = new Scope();
    this.#layers.forEach((layer, i) => {
      const result = layer instanceof Module ? layer.forward(value, ownCall) : layer(value);
      value = variableOf("Sequential", `the result of layer ${i}`, result);
    });
    scope.keepAll();
    return value;
  }
}
