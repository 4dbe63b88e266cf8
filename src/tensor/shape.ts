/** Shapes and dtypes of tensors. */
import { ArgumentError, DTypeError, ShapeError } from "../errors.js";
import { factsOf, SCALAR_FORMAT_NAMES } from "../formats/derive.js";
import type { ScalarFormat } from "../formats/scalar.js";
import { describe, isArray, listLength } from "../options.js";

/**
 * A dtype (element type): a scalar format, or a plain number type. FP4 is stored with two codes per byte, the even element in
 * the low half.
 */
export type DType = ScalarFormat | "f32" | "i32" | "u8" | "u16" | "u32";

/** The wide dtypes: the unquantized types, which quantizers read and dequantizers write. */
export const WIDE_DTYPES = ["f32", "bf16", "f16"] as const satisfies readonly DType[];
/** A wide dtype: f32, bf16 or f16. Quantizers read it, dequantizers write it, and layers compute in it. */
export type WideDType = (typeof WIDE_DTYPES)[number];
const WIDE: ReadonlySet<DType> = new Set(WIDE_DTYPES);

/** The sizes of the dimensions, outermost first. [] is a scalar. */
export type Shape = readonly number[];

const STORAGE_BITS: ReadonlyMap<unknown, number> = new Map<DType, number>([
  ...SCALAR_FORMAT_NAMES.map((format) => [format, factsOf(format).storageBits] as const),
  ["f32", 32],
  ["i32", 32],
  ["u8", 8],
  ["u16", 16],
  ["u32", 32],
]);

/** All dtypes. */
export const DTYPES = [...STORAGE_BITS.keys()] as readonly DType[];

/** Returns the number of bits of an element in memory. Throws `DTypeError` for an unknown dtype. */
export function storageBits(dtype: DType): number {
  const bits = STORAGE_BITS.get(dtype);
  if (bits !== undefined) return bits;
  throw new DTypeError(`dtype ${describe(dtype)} is not an element type; there are ${DTYPES.join(", ")}`);
}

/** Whether a dtype is wide: f32, bf16 or f16. */
export function isWide(dtype: DType): dtype is WideDType {
  return WIDE.has(dtype);
}

/** Returns the number of elements of a shape. */
export function elementCount(shape: Shape): number {
  let product = 1;
  for (let i = 0; i < shape.length; i++) product *= shape[i] as number;
  return product;
}

/** The maximum number of dimensions, as in PyTorch. */
export const MAX_RANK = 64;

/**
 * The maximum size of a tensor in bytes: the largest integer that f64 counts exactly. A dimension of size 0 counts as 1 here,
 * so that the strides of the other dimensions are exact too.
 */
export const MAX_BYTES = Number.MAX_SAFE_INTEGER;

/**
 * Returns a frozen copy of `shape`. A frozen array is copied too, because its elements may be accessors. Throws `ShapeError` if
 * it is not an array of integers from 0, has more than 64 dimensions, or cannot be read.
 */
export function ownShape(shape: Shape): Shape {
  if (!isArray(shape))
    throw new ShapeError(
      `shape ${describe(shape)} is not an array; give sizes such as [2, 3], and [] for a scalar`,
    );
  const rank = listLength(shape);
  // also for a proxy whose length is not a number
  if (!(rank <= MAX_RANK)) throw new ShapeError(`a shape of ${rank} dimensions; there may be ${MAX_RANK}`);
  // a literal takes half the time of an array that grows, and almost all shapes have one or two dimensions
  if (rank === 1) return Object.freeze([sizeAt(shape, 0)]);
  if (rank === 2) return Object.freeze([sizeAt(shape, 0), sizeAt(shape, 1)]);
  const copy: number[] = [];
  for (let axis = 0; axis < rank; axis++) copy.push(sizeAt(shape, axis));
  return Object.freeze(copy);
}

/** Returns the size at that axis, which is read once. */
function sizeAt(shape: Shape, axis: number): number {
  try {
    return requireSize(axis, shape[axis]);
  } catch (error) {
    if (error instanceof ShapeError) throw error;
    throw new ShapeError(
      `shape: axis ${axis} cannot be read, because its accessor or proxy throws; give numbers`,
    );
  }
}

function requireSize(axis: number, size: unknown): number {
  if (isIndex(size)) return size;
  throw new ShapeError(`shape: ${describe(size)} at axis ${axis} is not a size; sizes are integers from 0`);
}

/** Whether the value is an integer from 0 that f64 represents exactly. -0 is not. */
export function isIndex(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && !Object.is(value, -0);
}

/**
 * Returns the size in bytes of a tensor of a shape that `ownShape` returned. Throws `DTypeError` for an unknown dtype,
 * `ShapeError` for FP4 with an odd last dimension or for more than `MAX_BYTES`.
 */
export function byteLength(dtype: DType, shape: Shape): number {
  const bits = storageBits(dtype);
  const rank = shape.length;
  let elements = 1;
  let extent = bits / 8;
  for (let axis = 0; axis < rank; axis++) {
    const size = shape[axis] as number;
    elements *= size;
    if (size > 1) extent *= size;
  }
  // a product beyond the limit may be rounded, but never to a value below the limit
  if (extent > MAX_BYTES) {
    throw new ShapeError(
      `${dtype} [${shape}]: its sizes without zeros multiply to ${extent} bytes; there may be ${MAX_BYTES}`,
    );
  }
  if (bits < 8 && (shape.at(-1) ?? 1) % 2 !== 0) {
    throw new ShapeError(
      `${dtype} [${shape}]: the last dimension is odd and two codes share a byte; pad it to an even size`,
    );
  }
  return (elements * bits) / 8;
}

/**
 * Returns the dimension `dim` counted from the front; a negative one counts from the end. Throws `ArgumentError` for a dimension
 * that the shape does not have.
 */
export function dimensionOf(caller: string, name: string, shape: Shape, dim: number): number {
  const rank = shape.length;
  if (Number.isInteger(dim) && dim >= -rank && dim < rank) return dim < 0 ? dim + rank : dim;
  const range = rank === 0 ? "" : `; give an integer from ${-rank} to ${rank - 1}`;
  throw new ArgumentError(
    `${caller}: ${name} is ${describe(dim)}, and [${shape}] has ${rank} dimensions${range}`,
  );
}

/** Returns the product of the dimensions before `dim`, the size of `dim`, and the product of the dimensions after it. */
export function around(shape: Shape, dim: number): { outer: number; length: number; inner: number } {
  return {
    outer: elementCount(shape.slice(0, dim)),
    length: shape[dim] as number,
    inner: elementCount(shape.slice(dim + 1)),
  };
}

/** Returns the shape with dimension `dim` of size `size`. */
export function withSize(shape: Shape, dim: number, size: number): Shape {
  return shape.map((each, axis) => (axis === dim ? size : each));
}

/**
 * Returns a shape as rows and columns of a matrix: the leading dimensions are flattened into rows. [K] becomes [1, K]; []
 * becomes [1, 1].
 */
export function asMatrix(shape: Shape): readonly [rows: number, columns: number] {
  if (isMatrix(shape)) return shape;
  const last = shape.length - 1;
  if (last < 0) return [1, 1];
  let rows = 1;
  for (let i = 0; i < last; i++) rows *= shape[i] as number;
  return [rows, shape[last] as number];
}

function isMatrix(shape: Shape): shape is readonly [rows: number, columns: number] {
  return shape.length === 2;
}

/** Whether two shapes are equal. */
export function sameShape(a: Shape, b: Shape): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Rounds `value` up to a multiple of `step`. */
export function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
