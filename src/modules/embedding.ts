/** The embedding module. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { DTypeError } from "../errors.js";
import { embedding } from "../functional/embedding.js";
import { groupOf, SEQUENCE_PARALLEL_OPTIONS, type SequenceParallelOptions } from "../functional/ranks.js";
import { callable, optionsOf } from "../options.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { MODULE_OPTIONS, Module, type ModuleOptions, requireSizes } from "./module.js";
import { type InitMethod, normalInit, type Parameter, requireValues, uninitialized } from "./parameter.js";
import { TensorParallel } from "./tensor-parallel/tensor-parallel.js";
import { divideWeight, partShape, partValues } from "./tensor-parallel/weights.js";

/** Options of the `Embedding` module. All fields are optional. */
export interface EmbeddingModuleOptions extends ModuleOptions, SequenceParallelOptions {
  /** Initial values. Default: approximately normal with mean 0 and standard deviation 0.02. */
  readonly initMethod?: InitMethod | undefined;
}

const checkOptions = optionsOf<EmbeddingModuleOptions>({
  ...MODULE_OPTIONS,
  ...SEQUENCE_PARALLEL_OPTIONS,
  initMethod: callable,
});

/**
 * Looks up rows of the table `weight` [vocabulary, features] by index.
 *
 * With `group` each of n ranks has vocabulary / n rows of the table, in order of ranks. The result is bitwise equal to a lookup
 * in the full table (docs/distributed.md).
 *
 * @throws `ShapeError` for a vocabulary that is not divisible by the number of ranks.
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class Embedding extends Module {
  static {
    guardReceivers(this);
  }

  /** The table, [vocabulary, features], or this rank's rows of it. */
  readonly weight: Parameter;
  readonly #options: SequenceParallelOptions;

  constructor(
    backend: Backend,
    /** The number of rows of the table. */
    readonly vocabulary: number,
    /** The number of elements of a row. */
    readonly features: number,
    options: EmbeddingModuleOptions = {},
  ) {
    const ownOptions = checkOptions("Embedding", options);
    super(backend, ownOptions);
    requireSizes("Embedding", { vocabulary, features });
    const { initMethod = normalInit(0.02), sequenceParallel = false } = ownOptions;
    const group = groupOf("Embedding", backend, ownOptions);
    this.#options = group ? { group, sequenceParallel } : {};
    const fullShape = [vocabulary, features] as const;
    const parallel = group && new TensorParallel(group, "column", sequenceParallel);
    const shape = parallel ? partShape("Embedding", parallel, fullShape, "vocabulary") : fullShape;
    const partInit: InitMethod = (random) => {
      const values = initMethod(random, fullShape);
      return parallel
        ? partValues(parallel, requireValues("initMethod", "its result", values, fullShape), fullShape)
        : values;
    };
    this.weight = this.parameter("weight", shape, initMethod === uninitialized ? initMethod : partInit);
    if (parallel) divideWeight(this.weight, parallel, fullShape);
  }

  /**
   * Returns the rows [..., features] whose indices are `ids`, an i32 tensor or variable [...]. An index outside 0..vocabulary-1
   * gives a row of NaN. All ranks of a group must give the same ids. Under `sequenceParallel` each rank gets its part of the
   * result, which is divided along the first dimension.
   *
   * @throws `DTypeError` for ids that are not i32, `ArgumentError` for an argument that is not a tensor or is on another
   * backend, `DisposedError` for a disposed tensor or group.
   * @throws `ShapeError` if the first dimension is not divisible by the number of ranks, `DistributedError` for a group that
   * has failed.
   */
  forward(ids: VariableLike): Variable {
    const { value } = variableOf("Embedding", "ids", ids);
    if (value instanceof QuantizedTensor)
      throw new DTypeError(`Embedding: ids are quantized (${value.spec.quantizer}); they must be i32`);
    return embedding(this.weight, value, this.#options);
  }
}
