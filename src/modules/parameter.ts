/** Parameters of modules, and their initial values. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError, ShapeError } from "../errors.js";
import { castTo } from "../ops/cast/cast.js";
import { setZero, tensor } from "../ops/create.js";
import { anyNumber, atLeastZero, describe } from "../options.js";
import { type RandomState, randomState } from "../quantizers/quantizer.js";
import { normal } from "../random.js";
import type { Value } from "../tape/value.js";
import { Variable } from "../tape/variable.js";
import { QuantizedTensor } from "../tensor/quantized.js";
import { requireScalar, requireWide } from "../tensor/require.js";
import { disown, Scope } from "../tensor/scope.js";
import { byteLength, elementCount, ownShape, type Shape, type WideDType } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";

/**
 * A leaf that optimizers update. It lives until its module is disposed of, whatever scope is open.
 *
 * @throws `ArgumentError` for anything but a tensor, for a scale on another backend or initial values that are no Float32Array,
 * `DTypeError` or `ShapeError` for a value, a scale or initial values that do not fit each other, `DisposedError` for a tensor
 * that was disposed of.
 */
export class Parameter extends Variable {
  /** If set, a layer with `fuseWgradAccumulation` adds the gradient to this tensor instead of `grad`. */
  mainGrad: Tensor<"f32"> | undefined;

  #highPrecisionInitVal: Float32Array | undefined;

  /** `scale`: the scale of a quantized value, until the layer's own replaces it. */
  constructor(
    value: Value,
    highPrecisionInitVal?: Float32Array,
    private readonly scale?: Tensor<"f32">,
  ) {
    super(value, true);
    requireScalar("Parameter", "scale", scale);
    if (scale && scale.backend !== value.backend)
      throw new ArgumentError("Parameter: value and scale live on different backends; move them to one");
    if (value instanceof Tensor) requireWide("Parameter", "value", value);
    if (highPrecisionInitVal !== undefined) requireValues("Parameter", highPrecisionInitVal, value.shape);
    persistent(value);
    this.#highPrecisionInitVal = highPrecisionInitVal;
    if (scale) disown(scale);
  }

  /** The values before quantization, if `quantizedModelInit` preserved them. */
  get highPrecisionInitVal(): Float32Array | undefined {
    return this.#highPrecisionInitVal;
  }

  /** Releases the values before quantization, for when master weights are made or other values are loaded. */
  clearHighPrecisionInitVal(): void {
    this.#highPrecisionInitVal = undefined;
  }

  /** Releases the gradient and sets a main gradient to zero. */
  clearGrads(): void {
    this.zeroGrad();
    if (this.mainGrad) setZero(this.mainGrad);
  }

  /** Frees the value, the gradient and the main gradient. Safe to call twice. */
  dispose(): void {
    this.zeroGrad();
    this.mainGrad?.dispose();
    this.scale?.dispose();
    this.value.dispose();
  }
}

/** Removes `value` from its scope and returns it. */
export function persistent<T extends Value>(value: T): T {
  for (const member of value instanceof QuantizedTensor ? value.members : [value]) disown(member);
  return value;
}

/** Computes the initial values of a parameter. */
export type InitMethod = (random: RandomState, shape: Shape) => Float32Array;

/**
 * Approximately normal values with mean 0: see `normal`.
 *
 * @throws `ArgumentError` for a standard deviation that is negative or not finite.
 */
export function normalInit(std: number): InitMethod {
  atLeastZero("normalInit", "std", std);
  return (random, shape) => {
    randomState("normalInit", "random", random);
    const own = ownShape(shape);
    return normal(random.next(), elementCount(own), std);
  };
}

/**
 * The same value for every element.
 *
 * @throws `ArgumentError` for anything but a number.
 */
export function constantInit(value: number): InitMethod {
  anyNumber("constantInit", "value", value);
  return (_, shape) => {
    return new Float32Array(elementCount(ownShape(shape))).fill(value);
  };
}

/** A new parameter, initialized by `init`. */
export function newParameter(
  backend: Backend,
  shape: Shape,
  init: InitMethod,
  { dtype, random }: { readonly dtype: WideDType; readonly random: RandomState },
): Parameter {
  const own = ownShape(shape);
  // an impossible size is refused before the host allocates its values
  byteLength("f32", own);
  return new Parameter(wideTensor(backend, init(random, own), own, dtype));
}

/** Throws unless `values` fits a parameter of that shape. */
function requireValues(user: string, values: Float32Array, shape: Shape): void {
  if (!(values instanceof Float32Array))
    throw new ArgumentError(`${user}: values are ${describe(values)}; they must be a Float32Array`);
  if (values.length !== elementCount(shape))
    throw new ShapeError(`${user}: there are ${values.length} values for a parameter [${shape}]`);
}

/** `values` as a tensor of that type, each rounded to nearest even. */
export function wideTensor(
  backend: Backend,
  values: Float32Array,
  shape: Shape,
  dtype: WideDType,
): Tensor<WideDType> {
  requireValues("initMethod", values, shape);
  using scope = new Scope();
  return scope.keep(castTo(tensor(backend, values, shape), dtype));
}
