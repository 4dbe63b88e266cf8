/** The linear layers of experts, each of which multiplies some rows of one input. */

import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { splitsOf } from "../functional/moe-chunks.js";
import { boolean, type OptionTable, optionsOf } from "../options.js";
import { composed } from "../tape/composed.js";
import { differentiableOne, type VariableLike, variableOf } from "../tape/differentiable.js";
import { type Value, wideOf } from "../tape/value.js";
import type { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar } from "../tensor/require.js";
import { orDispose } from "../tensor/scope.js";
import { type Shape, storageBits, type WideDType } from "../tensor/shape.js";
import { Tensor, VIEW_ALIGNMENT } from "../tensor/tensor.js";
import { linearForward, prepareForward } from "./linear/forward.js";
import {
  type Division,
  LINEAR_OPTIONS,
  type LinearInput,
  type LinearOptions,
  type LinearParts,
  type LinearResult,
  linearParts,
} from "./linear/parts.js";
import { returnedBias, withoutBias } from "./linear/returned-bias.js";
import type { WeightUse } from "./linear/weight-cache.js";
import { Module, requireSizes } from "./module.js";
import type { Parameter } from "./parameter.js";
import type { QuantizationState } from "./quantization-state.js";
import type { ParallelOptions } from "./tensor-parallel/options.js";

/** Options of `GroupedLinear`. All fields are optional. */
export interface GroupedLinearOptions
  extends Omit<LinearOptions, keyof ParallelOptions | "parametersSplit"> {}

const {
  parallelMode: _,
  pieces: __,
  overlap: ___,
  group: ____,
  sequenceParallel: _____,
  parametersSplit: ______,
  ...OPTIONS
} = LINEAR_OPTIONS;
/** Checks the fields of `GroupedLinearOptions`. */
export const GROUPED_LINEAR_OPTIONS: OptionTable<GroupedLinearOptions> = OPTIONS;

const checkOptions = optionsOf<GroupedLinearOptions>(GROUPED_LINEAR_OPTIONS);
const checkCall = optionsOf<WeightUse>(
  { isFirstMicrobatch: boolean, skipFp8WeightUpdate: requireScalar },
  "call",
);

/** Rows of one expert. */
interface Rows {
  /** The first row, and the number of rows. */
  readonly start: number;
  readonly count: number;
}

/**
 * Computes y_i = x_i·weight_iᵀ + bias_i, where x_i are the rows of expert i: the first mSplits[0] rows of the input belong to
 * expert 0, the next mSplits[1] to expert 1, and so on.
 *
 * Each expert's product, quantization and gradients are bitwise equal to a `Linear` with its weight and rows, also in an autocast
 * region: each has its own scales and histories. A row's bits therefore do not depend on how many rows other experts have. An
 * expert without rows has gradients of 0.
 *
 * @throws `ArgumentError` for an unknown option, an invalid option value, or a size that is not a positive integer, `DTypeError`
 * for a parameter dtype other than f32, bf16 and f16, `DisposedError` for a disposed backend.
 */
export class GroupedLinear extends Module {
  static {
    guardReceivers(this);
  }

  /** The weights of the experts, each [N, K]. Their names are `weight0`, `weight1`, … */
  readonly weights: readonly Parameter[];
  /** The biases of the experts, each [N], with the names `bias0`, … Empty with the option `bias: false`. */
  readonly biases: readonly Parameter[];
  readonly #experts: readonly LinearParts[];

  constructor(
    backend: Backend,
    /** The number of experts. */
    readonly numGemms: number,
    /** K, the last dimension of the input. */
    readonly inFeatures: number,
    /** N, the last dimension of the result. */
    readonly outFeatures: number,
    options: GroupedLinearOptions = {},
  ) {
    const ownOptions = checkOptions("GroupedLinear", options);
    super(backend, ownOptions);
    requireSizes("GroupedLinear", { numGemms, inFeatures, outFeatures });
    const linearOptions = { ...ownOptions, dtype: this.dtype, random: this.random };
    const division = (i: number): Division => ({
      ...{ caller: "GroupedLinear", parallel: undefined },
      position: () => ({ moduleType: "groupedLinear", name: this.pathOf(`linear${i}`) }),
    });
    this.#experts = orDispose((created) =>
      Array.from({ length: numGemms }, (_, i) =>
        linearParts(backend, [outFeatures, inFeatures], linearOptions, division(i), created),
      ),
    );
    this.weights = this.#experts.map(({ weight }, i) => this.addParameter(`weight${i}`, weight));
    this.biases = this.#experts.flatMap(({ bias }, i) => (bias ? [this.addParameter(`bias${i}`, bias)] : []));
  }

  /** Returns the quantization states of the products, under the names `linear0`, `linear1`, … */
  protected override quantizations(): ReadonlyMap<string, QuantizationState> {
    return new Map(this.#experts.map(({ quantization }, i) => [`linear${i}`, quantization]));
  }

  /**
   * Returns the result [..., N] for an input [..., K], whose rows (all leading dimensions flattened) belong to the experts in
   * their order. It is computed under the recipe of the autocast region, or else in high precision. NaN and infinities propagate
   * as in `gemm`.
   *
   * @throws `ShapeError` or `DTypeError` for an input that does not fit the layer or its recipe, or whose number of rows is not
   * the sum of `mSplits`, `ArgumentError` unless `mSplits` has a number from 0 for each expert, and for call options that the
   * recipe does not allow, `UnsupportedError` for a recipe that the backend does not support. In each case nothing has changed.
   * @throws `DisposedError` for a disposed tensor.
   */
  forward(input: VariableLike, mSplits: readonly number[], call: WeightUse = {}): Variable {
    return this.#forward(input, mSplits, call, this.#experts);
  }

  /**
   * Runs `forward` without adding the biases and returns them too, as `Linear.forwardWithBias` does. The list is empty if the
   * layer has none.
   *
   * @throws `ShapeError`, `DTypeError`, `ArgumentError`, `UnsupportedError` and `DisposedError` as `forward` does.
   */
  forwardWithBias(
    input: VariableLike,
    mSplits: readonly number[],
    call: WeightUse = {},
  ): readonly [out: Variable, biases: readonly Variable[]] {
    const [out, ...biases] = composed(() => {
      const result = this.#forward(input, mSplits, call, this.#experts.map(withoutBias));
      return [result, ...this.#experts.flatMap((expert) => returnedBias(expert, result))];
    });
    return [out, biases];
  }

  #forward(
    input: VariableLike,
    mSplits: readonly number[],
    call: WeightUse,
    experts: readonly LinearParts[],
  ): Variable {
    const x = variableOf("GroupedLinear", "input", input);
    const sizes = splitsOf("GroupedLinear", "mSplits", mSplits);
    const ownCall = checkCall("GroupedLinear", call);
    if (sizes.length !== this.numGemms)
      throw new ArgumentError(
        `GroupedLinear: mSplits has ${sizes.length} numbers; give one for each of ${this.numGemms} experts`,
      );
    const { shape } = x;
    const rowCount = shape.slice(0, -1).reduce((product, size) => product * size, 1);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (rowCount !== total)
      throw new ShapeError(
        `GroupedLinear: the input is [${shape}], which has ${rowCount} rows; mSplits adds up to ${total}`,
      );
    const rows = rowRanges(sizes);
    const biases = experts.flatMap(({ bias }) => bias ?? []);
    return differentiableOne([x, ...this.weights, ...biases], (grad) => {
      if (x.value instanceof QuantizedTensor)
        throw new ArgumentError(
          "GroupedLinear: the input is quantized; each expert quantizes its own rows, so give it in f32, bf16 or f16",
        );
      const value = wideOf("GroupedLinear: the input", x.value);
      const inputs = rows.map((range) => sliceInput(value, range, x.requiresGrad));
      const results = this.#run(experts, inputs, ownCall, grad);
      const out = concatenateRows(
        results.map(({ out: each }) => wideOf("GroupedLinear", each)),
        rows,
        [...shape.slice(0, -1), this.outFeatures],
      );
      return {
        result: out,
        saved: results.flatMap(({ saved }) => saved),
        backward: (gradient, pass) => {
          const dy = wideOf("GroupedLinear: the gradient", gradient);
          const gradients = results.map(({ backward }, i) =>
            backward(sliceRange(dy, rows[i] as Rows), pass, { temporary: true }),
          );
          const inputGrads = gradients.map(
            (layerGrads) => layerGrads.x && wideOf("GroupedLinear: a gradient", layerGrads.x),
          );
          return [
            inputGrads.every((each) => each !== undefined)
              ? concatenateRows(inputGrads, rows, shape)
              : undefined,
            ...gradients.map(({ weight }) => weight),
            ...(biases.length > 0 ? gradients.map(({ bias }) => bias) : []),
          ];
        },
      };
    });
  }

  /** Runs the products of all experts. If one would throw, none has changed anything. */
  #run(
    layers: readonly LinearParts[],
    inputs: readonly LinearInput[],
    call: WeightUse,
    grad: boolean,
  ): readonly LinearResult[] {
    const experts = layers.map((expert, i) => ({ expert, input: inputs[i] as LinearInput }));
    using _ = {
      [Symbol.dispose]: () => {
        for (const { expert } of experts) expert.quantization.release();
      },
    };
    for (const { expert, input } of experts.slice(1)) prepareForward(expert, input);
    return experts.map(({ expert, input }) => linearForward(expert, input, call, grad));
  }
}

/** Returns the rows of each expert. */
function rowRanges(sizes: readonly number[]): readonly Rows[] {
  let next = 0;
  return sizes.map((count) => {
    const start = next;
    next += count;
    return { start, count };
  });
}

/** Returns the input of one expert's product. */
function sliceInput(x: Tensor<WideDType>, rows: Rows, requiresGrad: boolean): LinearInput {
  const { dtype, backend } = x;
  const shape = [rows.count, x.shape.at(-1) ?? 1];
  return { shape, dtype, backend, requiresGrad, createsValue: true, value: (): Value => sliceRange(x, rows) };
}

/** Returns rows of x [..., K] as a matrix: a view if it would be aligned, else a copy. */
function sliceRange(x: Tensor<WideDType>, { start, count }: Rows): Tensor<WideDType> {
  const columns = x.shape.at(-1) ?? 1;
  const isAligned = (start * columns * storageBits(x.dtype)) % (8 * VIEW_ALIGNMENT) === 0;
  return isAligned ? x.view(start * columns, [count, columns]) : x.slice(start * columns, [count, columns]);
}

/** Returns the rows of all experts in a tensor of `shape`, and disposes of `matrices`. */
function concatenateRows(
  matrices: readonly Tensor<WideDType>[],
  rows: readonly Rows[],
  shape: Shape,
): Tensor<WideDType> {
  const { backend, dtype } = matrices[0] as Tensor<WideDType>;
  const columns = shape.at(-1) ?? 1;
  const out = new Tensor(backend, dtype, shape);
  for (const [i, part] of matrices.entries()) {
    out.paste(part, (rows[i] as Rows).start * columns);
    part.dispose();
  }
  return out;
}
