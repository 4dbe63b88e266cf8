/** The embedding module. */
import type { Backend } from "../backends/backend.js";
import { DTypeError } from "../errors.js";
import { embedding } from "../functional/embedding.js";
import { callable, optionsOf } from "../options.js";
import { type VariableLike, variable } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { MODULE_OPTIONS, Module, type ModuleOptions, requireSizes } from "./module.js";
import { type InitMethod, normalInit, type Parameter } from "./parameter.js";

/** What the `Embedding` module takes; every field may be left out. */
export interface EmbeddingModuleOptions extends ModuleOptions {
  /** Default: near normal with standard deviation 0.02. */
  readonly initMethod?: InitMethod | undefined;
}

const checkOptions = optionsOf<EmbeddingModuleOptions>({ ...MODULE_OPTIONS, initMethod: callable });

/**
 * Looks up rows of `weight` [vocabulary, features] by id.
 *
 * @throws `ArgumentError` for an unknown option or one outside its domain, and for sizes that are not whole numbers from 1,
 * `DTypeError` for a type that parameters cannot have, `DisposedError` for a backend that was disposed of.
 */
export class Embedding extends Module {
  /** The table, [vocabulary, features]. */
  readonly weight: Parameter;

  constructor(
    backend: Backend,
    /** Rows of the table. */
    readonly vocabulary: number,
    /** Elements of a row. */
    readonly features: number,
    options: EmbeddingModuleOptions = {},
  ) {
    super(backend, checkOptions("Embedding", options));
    requireSizes("Embedding", { vocabulary, features });
    this.weight = this.parameter("weight", [vocabulary, features], options.initMethod ?? normalInit(0.02));
  }

  /**
   * The rows [..., features] of ids, i32 [...], a tensor or a variable. An id outside 0..vocabulary-1 gives a row of NaN.
   *
   * @throws `DTypeError` for ids that are not i32, `ArgumentError` for anything but a tensor on the module's backend,
   * `DisposedError` for a tensor that was disposed of.
   */
  forward(ids: VariableLike): Variable {
    const { value } = variable(ids);
    if (value instanceof QuantizedTensor)
      throw new DTypeError(`Embedding: ids are quantized (${value.spec.quantizer}); they must be i32`);
    return embedding(this.weight, value);
  }
}
