/** Parameters of modules, and the functions that compute their initial values. */

import { platform } from "#platform";
import { requireBody } from "../autocast.js";
import type { Backend } from "../backends/backend.js";
import { guardReceivers } from "../brand.js";
import type { ProcessGroup } from "../collectives/group.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { castTo } from "../ops/cast/cast.js";
import { setZero, tensor } from "../ops/create.js";
import { anyNumber, atLeastZero, describe } from "../options.js";
import type { Quantizer } from "../quantizers/quantizer.js";
import { type RandomState, randomState } from "../quantizers/random-state.js";
import type { RowDivision } from "../quantizers/shard.js";
import { hostArray, normal } from "../random.js";
import type { Sharding } from "../tape/sharding.js";
import { USE_HOOKS } from "../tape/uses.js";
import { membersOf, type Value } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { asPlain, kindOf } from "../tensor/data.js";
import type { TensorPart } from "../tensor/part.js";
import { optional, requireScalar, requireWide } from "../tensor/require.js";
import { disown, Scope } from "../tensor/scope.js";
import { elementCount, ownShape, type Shape, type WideDType } from "../tensor/shape.js";
import { metaTensor, REVIVE, Tensor } from "../tensor/tensor.js";
import type { DelayedGradients } from "./delayed-gradients.js";

/** Creates the quantizer of this rank's rows of a quantized parameter. */
export type WeightQuantizer = (rows: RowDivision) => Quantizer;

/** How tensor parallelism divides a parameter among ranks. */
export interface RankParts {
  readonly group: ProcessGroup;
  /** The dimension along which the full parameter is divided. */
  readonly axis: 0 | 1;
  /** Returns the position of a rank's part in the full parameter. */
  readonly partOf: (rank: number) => TensorPart;
}

/**
 * A leaf variable that optimizers update. It lives until its module is disposed of; no scope frees it.
 *
 * @throws `ArgumentError` for a value that is not a tensor, a scale on another backend, or initial values that are not a
 * Float32Array, `DTypeError` or `ShapeError` for a scale or initial values that do not match the value, or a value that is not
 * f32, bf16, f16 or quantized, `DisposedError` for a disposed tensor.
 */
export class Parameter extends Variable {
  static {
    guardReceivers(this);
  }

  /**
   * If set, a layer with `fuseWgradAccumulation` adds the weight gradient to this tensor instead of to `grad`. It has the shape
   * of `value`: after `fullyShard` it contains this rank's rows, to which reduced gradients are added.
   */
  mainGrad: Tensor<"f32"> | undefined;

  /**
   * The part of the full parameter that `value` is, if the parameter is divided among ranks. Sharded checkpoints use it.
   * Undefined if `value` is the full parameter.
   */
  part: TensorPart | undefined;

  #ranks: RankParts | undefined;
  /** @internal The ranks of the pipeline that has this parameter in one of its stages. */
  pipeline: ProcessGroup | undefined;

  #highPrecisionInitVal: Float32Array | undefined;
  #sharding: Sharding | undefined;
  /** @internal Whether a layer with `fuseWgradAccumulation` uses the parameter as its weight. */
  fusesAccumulation = false;
  /** @internal Whether the value is a part of a larger weight or bias (`parametersSplit`). */
  isSplitPart = false;
  /** @internal The gradients that `Module.backwardDw` computes. Undefined unless the layer has `delayWgradCompute`. */
  delayedGradients: DelayedGradients | undefined;
  /** @internal Creates the quantizer of the value. Set if `quantizedModelInit` has quantized it. */
  quantizer: WeightQuantizer | undefined;

  /** `scale` is the scale of a quantized value. The parameter owns it until the scale of a layer replaces it. */
  constructor(
    value: Value,
    highPrecisionInitVal?: Float32Array,
    private readonly scale?: Tensor<"f32">,
  ) {
    super(value, true);
    optional(requireScalar)("Parameter", "scale", scale);
    if (scale && scale.backend !== value.backend)
      throw new ArgumentError("Parameter: value and scale live on different backends; move them to one");
    if (value instanceof Tensor && !value.isMeta) requireWide("Parameter", "value", value);
    const initial =
      highPrecisionInitVal === undefined
        ? undefined
        : requireValues("Parameter", "highPrecisionInitVal", highPrecisionInitVal, value.shape);
    persistent(value);
    this.#highPrecisionInitVal = initial;
    if (scale) disown(scale);
  }

  /**
   * The tensor, quantized or not. After `fullyShard` it contains this rank's rows only. While an operation uses the parameter, it
   * is the full parameter.
   */
  override get value(): Value {
    const sharding = this.#sharding;
    if (!sharding) return super.value;
    return sharding.inUse ? sharding.unshard() : sharding.localValue;
  }

  /** @internal `Module.backwardDw` calls the hooks if it computes the gradient. */
  override get hooksAfterPass(): boolean {
    return this.delayedGradients !== undefined;
  }

  /** The shape of `value`. */
  override get shape(): Shape {
    const sharding = this.#sharding;
    return sharding?.inUse ? sharding.fullShape : this.localValue.shape;
  }

  /** The backend of the value. */
  override get backend(): Backend {
    return this.localValue.backend;
  }

  /** @internal The tensor that this rank stores: the rows of a sharded parameter, else the value. */
  get localValue(): Value {
    return this.#sharding?.localValue ?? super.value;
  }

  /** @internal How tensor parallelism divides the parameter, or undefined. `fullyShard` may divide this rank's part again. */
  get ranks(): RankParts | undefined {
    return this.#ranks;
  }

  /** @internal Records that the value is this rank's part of a full parameter. */
  setRankParts(ranks: RankParts): void {
    this.#ranks = ranks;
    this.part = ranks.partOf(ranks.group.rank);
  }

  /** @internal How `fullyShard` divides the parameter among ranks, or undefined. */
  get sharding(): Sharding | undefined {
    return this.#sharding;
  }

  /**
   * @internal Replaces the value by `sharding.localValue`, this rank's rows. `values` are the values of these rows before
   * quantization.
   */
  setSharding(sharding: Sharding, values: Float32Array | undefined): void {
    const fullValue = super.value;
    this.#sharding = sharding;
    this[USE_HOOKS] = sharding;
    this.#highPrecisionInitVal = values;
    fullValue.dispose();
  }

  /** The dtype of the value, or the nominal dtype of a quantized one. */
  get dtype(): WideDType {
    return this.localValue.dtype as WideDType;
  }

  /** The values before quantization, if `quantizedModelInit` kept them. */
  get highPrecisionInitVal(): Float32Array | undefined {
    return this.#highPrecisionInitVal;
  }

  /**
   * Releases the values before quantization. Call it after master weights were created from them or other values were loaded.
   */
  clearHighPrecisionInitVal(): void {
    this.#highPrecisionInitVal = undefined;
  }

  /** Whether `onMetaDevice` has created the parameter and it has no memory yet. */
  get isMeta(): boolean {
    const value = super.value;
    return value instanceof Tensor && value.isMeta;
  }

  /** @internal Gives a parameter without memory the memory of `source`, a tensor of its dtype and shape. */
  setMemory(source: Tensor): void {
    (super.value as Tensor)[REVIVE](source);
    this.#initialize = undefined;
  }

  /** @internal Allocates a parameter without memory, and computes its initial values. */
  materialize(): void {
    using _ = new Scope();
    if (this.#initialize && this.isMeta) this.setMemory(this.#initialize());
  }

  /** @internal The number of parameters that `onMetaDevice` had created before this one. */
  creation = 0;
  #initialize: (() => Tensor<WideDType>) | undefined;

  /** @internal Creates a parameter without memory. `initialize` computes the initial values when it gets memory. */
  static deferred(
    backend: Backend,
    dtype: WideDType,
    shape: Shape,
    initialize: () => Tensor<WideDType>,
  ): Parameter {
    const parameter = new Parameter(metaTensor(backend, dtype, shape));
    parameter.#initialize = initialize;
    parameter.creation = created++;
    return parameter;
  }

  /** Disposes of the gradient and clears it. */
  override zeroGrad(): void {
    super.zeroGrad();
    this.#sharding?.zeroGrad();
  }

  /** Releases `grad` and sets `mainGrad`, if there is one, to zero. */
  clearGrads(): void {
    this.zeroGrad();
    if (this.mainGrad) setZero(this.mainGrad);
    this.#sharding?.clearMainGrad();
  }

  /** Frees the value, its scale, `grad` and `mainGrad`. A second call does nothing. */
  dispose(): void {
    this.zeroGrad();
    this.mainGrad?.dispose();
    this.delayedGradients?.dispose();
    this.scale?.dispose();
    if (this.#sharding) this.#sharding.dispose();
    else this.value.dispose();
  }
}

/** Removes `value` from the scope that owns it, so that the scope does not free it, and returns it. */
export function persistent<T extends Value>(value: T): T {
  for (const member of membersOf(value)) disown(member);
  return value;
}

/** A function that computes the initial values of a parameter. */
export type InitMethod = (random: RandomState, shape: Shape) => Float32Array;

/**
 * Returns an initializer that draws approximately normal values with mean 0 and standard deviation `std`. See `normal`.
 *
 * @throws `ArgumentError` for a standard deviation that is negative or not finite.
 */
export function normalInit(std: number): InitMethod {
  atLeastZero("normalInit", "std", std);
  return (random, shape) => {
    randomState("normalInit", "random", random);
    return normal(random.next(), elementCount(ownShape(shape)), std);
  };
}

/**
 * Returns an initializer that sets every element to `value`.
 *
 * @throws `ArgumentError` for an argument that is not a number.
 */
export function constantInit(value: number): InitMethod {
  anyNumber("constantInit", "value", value);
  return (_, shape) => {
    return hostArray(Float32Array, elementCount(ownShape(shape))).fill(value);
  };
}

/**
 * The initializer of parameters that a file fills: their memory stays uninitialized, and the host allocates no values.
 *
 * @shared
 */
export const uninitialized: InitMethod = (_, shape) => hostArray(Float32Array, elementCount(ownShape(shape)));

/** The number of parameters that `onMetaDevice` has created. */
let created = 0;

const deferral = platform.ambient<{ readonly isDeferred: true }>();

/** Whether parameters that are created here get no memory: whether `onMetaDevice` runs. */
export function isDeferring(): boolean {
  return deferral.get() !== undefined;
}

/**
 * Runs `body` and returns its result. Modules that `body` creates have parameters without memory, as on PyTorch's meta device.
 * `materializeParameters` of a module gives them memory and their initial values; loading a checkpoint or a state dictionary
 * gives them memory and the loaded values. Until then every other use of their values throws an `ArgumentError`. Neither weights
 * of `quantizedModelInit` nor the option `parametersSplit` are possible.
 *
 * @throws `ArgumentError` for a body that is not a function. Errors of the body propagate.
 */
export function onMetaDevice<R>(body: () => R): R {
  requireBody("onMetaDevice", body);
  return deferral.run({ isDeferred: true }, body);
}

/** Creates a parameter with the initial values that `init` computes. */
export function newParameter(
  backend: Backend,
  shape: Shape,
  init: InitMethod,
  { dtype, random }: { readonly dtype: WideDType; readonly random: RandomState },
): Parameter {
  const checkedShape = ownShape(shape);
  const initialize = (): Tensor<WideDType> =>
    init === uninitialized
      ? new Tensor(backend, dtype, checkedShape)
      : wideTensor(backend, init(random, checkedShape), checkedShape, dtype);
  if (isDeferring()) return Parameter.deferred(backend, dtype, checkedShape, initialize);
  if (init === uninitialized) return new Parameter(initialize());
  // throws for a size that is too large, before `init` computes values and allocates host memory for them
  new Tensor(backend, "f32", checkedShape).dispose();
  return new Parameter(initialize());
}

/**
 * Gives memory to all parameters without memory, with undefined contents. If it throws, none has memory.
 */
export function allocateParameters(parameters: Iterable<Parameter>): void {
  using _ = new Scope();
  const entries = [...parameters]
    .filter((parameter) => parameter.isMeta)
    .map(
      (parameter) => [parameter, new Tensor(parameter.backend, parameter.dtype, parameter.shape)] as const,
    );
  for (const [parameter, memory] of entries) parameter.setMemory(memory);
}

/**
 * Returns `values` as a plain Float32Array. Throws `ArgumentError` or `ShapeError` unless it is a Float32Array with one value for
 * each element of `shape`. Messages call it `name`.
 */
export function requireValues(
  caller: string,
  name: string,
  values: Float32Array,
  shape: Shape,
): Float32Array {
  if (kindOf(values) !== "Float32Array")
    throw new ArgumentError(`${caller}: ${name} is ${describe(values)}; it must be a Float32Array`);
  const hostValues = asPlain(caller, "Float32Array", values);
  if (hostValues.length !== elementCount(shape))
    throw new ShapeError(`${caller}: ${name} has ${hostValues.length} values for a parameter [${shape}]`);
  return hostValues;
}

/** Returns `values` as a tensor of type `dtype`. Each value is rounded to nearest even. */
export function wideTensor(
  backend: Backend,
  values: Float32Array,
  shape: Shape,
  dtype: WideDType,
): Tensor<WideDType> {
  const hostValues = requireValues("initMethod", "its result", values, shape);
  using scope = new Scope();
  return scope.keep(castTo(tensor(backend, hostValues, shape), dtype));
}
