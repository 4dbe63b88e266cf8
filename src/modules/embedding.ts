/** The embedding module. */
import type { Backend } from "../backends/backend.js";
import { DTypeError } from "../errors.js";
import { embedding } from "../functional/embedding.js";
import { groupOf, SEQUENCE_PARALLEL_OPTIONS, type SequenceParallelOptions } from "../functional/ranks.js";
import { callable, optionsOf } from "../options.js";
import { type VariableLike, variableOf } from "../tape/differentiable.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { MODULE_OPTIONS, Module, type ModuleOptions, requireSizes } from "./module.js";
import { type InitMethod, normalInit, type Parameter, requireValues } from "./parameter.js";
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
 * With `group` each rank has vocabulary / n rows of the table, those of its ids, and the result is that of the whole table, to
 * the bit (docs/distributed.md).
 *
 * @throws `ShapeError` for a vocabulary that the ranks of the group do not divide.
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer,
 * `DTypeError` for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class Embedding extends Module {
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
    const whole = [vocabulary, features] as const;
    const parallel = group && new TensorParallel(group, "column", sequenceParallel);
    const shape = parallel ? partShape("Embedding", parallel, whole, "vocabulary") : whole;
    this.weight = this.parameter("weight", shape, (random) => {
      const values = initMethod(random, whole);
      return parallel
        ? partValues(parallel, requireValues("initMethod", "its result", values, whole), whole)
        : values;
    });
    if (parallel) divideWeight(this.weight, parallel, whole);
  }

  /**
   * Returns the rows [..., features] whose indices are `ids`, an i32 tensor or variable [...]. An index outside 0..vocabulary-1
   * gives a row of NaN. All ranks of a group give the same ids; under `sequenceParallel` each gets its part of the rows, the
   * first dimension.
   *
   * @throws `DTypeError` for ids that are not i32, `ArgumentError` for an argument that is not a tensor or is on another
   * backend, `DisposedError` for a disposed tensor or group.
   * @throws `ShapeError` for rows that the ranks do not divide, `DistributedError` for a group that has failed.
   */
  forward(ids: VariableLike): Variable {
    const { value } = variableOf("Embedding", "ids", ids);
    if (value instanceof QuantizedTensor)
      throw new DTypeError(`Embedding: ids are quantized (${value.spec.quantizer}); they must be i32`);
    return embedding(this.weight, value, this.#options);
  }
}
