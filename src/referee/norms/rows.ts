/** Operands of norms: the input as a matrix whose rows are normalized, and weights or biases of its columns. */
import { elementCount, type Shape, sameShape } from "../../tensor/shape.js";
import type { Call } from "../call.js";
import { toFloat32 } from "../conversions.js";
import { NotModelled } from "../not-modelled.js";
import type { Value } from "../value.js";

/** The input of a norm as `rows` rows of `size` elements. */
export interface NormRows {
  readonly x: Value;
  readonly values: Float32Array;
  readonly rows: number;
  readonly size: number;
  /** The shape of a statistic, such as the mean, with one number for each row. */
  readonly statShape: Shape;
  /** Whether rows are read as vectors of 4 elements. */
  readonly isVectorized: boolean;
}

/** The rows of a norm's input. Throws `NotModelled` if its last dimensions are not `normalized_shape`. */
export function normRows(call: Call): NormRows {
  const x = call.tensor("input");
  const normalizedShape = call.integers("normalized_shape");
  const axis = x.shape.length - normalizedShape.length;
  if (axis < 0 || !sameShape(x.shape.slice(axis), normalizedShape))
    throw new NotModelled(`a norm over [${normalizedShape}] of [${x.shape}]`);
  const size = elementCount(normalizedShape);
  return {
    x,
    values: toFloat32(call.backend, x),
    rows: elementCount(x.shape.slice(0, axis)),
    size,
    statShape: x.shape.map((extent, dim) => (dim < axis ? extent : 1)),
    isVectorized: size % 4 === 0 && size <= 2 ** 24,
  };
}

/**
 * The f32 values of a weight or bias; undefined if the argument is absent. Throws `NotModelled` unless it has the dtype of the
 * input.
 */
export function readWeight(call: Call, name: string, { x, size }: NormRows): Float32Array | undefined {
  if (call.get(name) === undefined) return undefined;
  const weight = call.tensor(name);
  if (weight.dtype !== x.dtype || elementCount(weight.shape) !== size)
    throw new NotModelled(`${name} ${weight.dtype} [${weight.shape}] with an input of ${x.dtype}`);
  return toFloat32(call.backend, weight);
}
