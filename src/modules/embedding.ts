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

/** Options of the `Embedding` module. All fields are optional. */
export interface EmbeddingModuleOptions extends ModuleOptions {
  /** Initial values. Default: approximately normal with mean 0 and standard deviation 0.02. */
  readonly initMethod?: InitMethod | undefined;
}

const checkOptions = optionsOf<EmbeddingModuleOptions>({ ...MODULE_OPTIONS, initMethod: callable });

/**
 * Looks up rows of the table `weight` [vocabulary, features] by index.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class Embedding extends Module {
  /** The table, [vocabulary, features]. */
  readonly weight: Parameter;

  constructor(
    backend: Backend,
    /** The number of rows of the table. */
    readonly vocabulary: number,
    /** The number of elements of a row. */
    readonly features: number,
    options: EmbeddingModuleOptions = {},
  ) {
    super(backend, checkOptions("Embedding", options));
    requireSizes("Embedding", { vocabulary, features });
    this.weight = this.parameter("weight", [vocabulary, features], options.initMethod ?? normalInit(0.02));
  }

  /**
   * Returns the rows [..., features] whose indices are `ids`, an i32 tensor or variable [...]. An index outside 0..vocabulary-1
   * gives a row of NaN.
   *
   * @throws `DTypeError` for ids that are not i32, `ArgumentError` for an argument that is not a tensor or is on another
   * backend, `DisposedError` for a disposed tensor.
   */
  forward(ids: VariableLike): Variable {
    const { value } = variable(ids);
    if (value instanceof QuantizedTensor)
      throw new DTypeError(`Embedding: ids are quantized (${value.spec.quantizer}); they must be i32`);
    return embedding(this.weight, value);
  }
}
