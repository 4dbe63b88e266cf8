/** Tensors of recorded operations: their elements in memory, and copies of strided views. */
import type { Backend } from "../backends/backend.js";
import { OutOfMemoryError, ShapeError } from "../errors.js";
import { FILE_DTYPES, type FileDType, fileBytes, fileDType, tensorDType } from "../io/dtypes.js";
import { fromBytes } from "../ops/create.js";
import { asBytes } from "../tensor/data.js";
import { elementCount, type Shape, sameShape } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import { NotModelled } from "./not-modelled.js";

/** A tensor of a recorded operation, in row-major order without gaps. */
export interface Value {
  readonly dtype: FileDType;
  readonly shape: Shape;
  readonly bytes: Uint8Array;
}

/** The maximum size of a value in bytes. A larger tensor in a file is refused before memory is allocated. */
export const MAX_VALUE_BYTES = 2 ** 32;

/** The number of bytes of an element. Throws `NotModelled` for elements that share bytes. */
export function itemSize(dtype: FileDType): number {
  const { bits } = FILE_DTYPES[dtype];
  if (bits % 8 === 0) return bits / 8;
  throw new NotModelled(`elements of ${dtype} share bytes`);
}

/** Returns a value of zero bytes. Throws `ShapeError` beyond `MAX_VALUE_BYTES`, `OutOfMemoryError` without memory. */
export function zeroValue(dtype: FileDType, shape: Shape): Value {
  itemSize(dtype);
  const size = fileBytes(dtype, shape);
  if (!shape.every((extent) => Number.isSafeInteger(extent) && extent >= 0) || !(size <= MAX_VALUE_BYTES))
    throw new ShapeError(`a value is ${dtype} [${shape}]; it may have at most ${MAX_VALUE_BYTES} bytes`);
  try {
    return { dtype, shape, bytes: new Uint8Array(size) };
  } catch {
    throw new OutOfMemoryError(size, 0, "replay the run on a machine with more memory");
  }
}

/** Copies a value to a tensor on `backend`. Throws `NotModelled` for a type that tensors do not have. */
export function toTensor(backend: Backend, { dtype, shape, bytes }: Value): Tensor {
  const type = tensorDType(dtype);
  if (type === undefined) throw new NotModelled(`${dtype} operands`);
  return fromBytes(backend, bytes, shape, type);
}

/** Copies a tensor to the host. */
export function toValue(tensor: Tensor): Value {
  return { dtype: fileDType(tensor.dtype), shape: tensor.shape, bytes: asBytes(tensor.dataSync()) };
}

/** A strided view: its element (i, j, …) is element offset + i * strides[0] + j * strides[1] + … of the viewed value. */
export interface View {
  readonly shape: Shape;
  readonly strides: readonly number[];
  readonly offset: number;
}

/** The strides of a row-major tensor. */
export function stridesOf(shape: Shape): readonly number[] {
  const strides: number[] = [];
  let stride = 1;
  for (const size of shape.toReversed()) {
    strides.unshift(stride);
    stride *= size;
  }
  return strides;
}

/** The view of all elements. */
export function fullView({ shape }: Value): View {
  return { shape, strides: stridesOf(shape), offset: 0 };
}

/** Calls `body` for each element of a view, in row-major order, with its index in the view and its index in the viewed value. */
export function forEachElement(
  { shape, strides, offset }: View,
  body: (index: number, source: number) => void,
): void {
  const count = elementCount(shape);
  const position = shape.map(() => 0);
  let source = offset;
  for (let index = 0; index < count; index++) {
    body(index, source);
    for (let dim = shape.length - 1; dim >= 0; dim--) {
      const [size, stride] = [shape[dim] as number, strides[dim] as number];
      const nextPosition = (position[dim] as number) + 1;
      source += stride;
      position[dim] = nextPosition;
      if (nextPosition < size) break;
      position[dim] = 0;
      source -= size * stride;
    }
  }
}

/** Returns a row-major copy of a view of `x`. */
export function copyView(x: Value, view: View): Value {
  const out = zeroValue(x.dtype, view.shape);
  const size = itemSize(x.dtype);
  forEachElement(view, (index, source) => copyElement(x.bytes, source, out.bytes, index, size));
  return out;
}

/** Returns a copy of `base` in which the elements of a view are replaced by the elements of `x`. */
export function replaceView(base: Value, view: View, x: Value): Value {
  const size = itemSize(base.dtype);
  const bytes = base.bytes.slice();
  forEachElement(view, (index, target) => copyElement(x.bytes, index, bytes, target, size));
  return { ...base, bytes };
}

/** The rows of a tensor along one dimension: element i of row (o, n) has the index (o * size + i) * inner + n. */
export interface DimRows {
  readonly outer: number;
  readonly size: number;
  readonly inner: number;
}

/** The rows of a tensor along a dimension. A tensor without dimensions is one row of one element. */
export function rowsAlong(shape: Shape, dim: number): DimRows {
  return {
    outer: elementCount(shape.slice(0, dim)),
    size: shape[dim] ?? 1,
    inner: elementCount(shape.slice(dim + 1)),
  };
}

/** The index of the first element of a row. Consecutive elements of the row are `inner` apart. */
export function rowStart({ size, inner }: DimRows, row: number): number {
  return Math.floor(row / inner) * size * inner + (row % inner);
}

/** Copies element `sourceIndex` of `source` to element `targetIndex` of `target`. An element has `size` bytes. */
export function copyElement(
  source: Uint8Array,
  sourceIndex: number,
  target: Uint8Array,
  targetIndex: number,
  size: number,
): void {
  for (let byte = 0; byte < size; byte++)
    target[targetIndex * size + byte] = source[sourceIndex * size + byte] as number;
}

/** The rows [begin, end) along the first dimension, without copying. */
export function sliceRows({ dtype, shape, bytes }: Value, begin: number, end: number): Value {
  const size = bytes.length / Math.max(shape[0] ?? 1, 1);
  return { dtype, shape: shape.with(0, end - begin), bytes: bytes.subarray(begin * size, end * size) };
}

/** Copies the first rows and columns of a matrix. */
export function copyCorner({ dtype, shape, bytes }: Value, rows: number, columns: number): Value {
  const [height = 0, width = 0] = shape;
  const size = bytes.length / Math.max(height * width, 1);
  const out = new Uint8Array(rows * columns * size);
  for (let row = 0; row < rows; row++)
    out.set(bytes.subarray(row * width * size, (row * width + columns) * size), row * columns * size);
  return { dtype, shape: [rows, columns], bytes: out };
}

/** A value whose bytes are the bytes of `parts`, one part after another. */
export function concatenateBytes(
  parts: readonly Value[],
  { dtype, shape }: Pick<Value, "dtype" | "shape">,
): Value {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.bytes.length, 0));
  let offset = 0;
  for (const part of parts) {
    bytes.set(part.bytes, offset);
    offset += part.bytes.length;
  }
  return { dtype, shape, bytes };
}

/** Returns `x` in this shape, without copying. Throws `ShapeError` for another number of elements. */
export function reshape(x: Value, shape: Shape): Value {
  if (elementCount(shape) === elementCount(x.shape)) return { ...x, shape };
  throw new ShapeError(`[${x.shape}] cannot be viewed as [${shape}]`);
}

/** Returns `x` with its last two dimensions exchanged. */
export function transposeLastDims(x: Value): Value {
  const { shape, strides, offset } = fullView(x);
  const swap = <T>(list: readonly T[]): readonly T[] => [
    ...list.slice(0, -2),
    ...list.slice(-2).toReversed(),
  ];
  return copyView(x, { shape: swap(shape), strides: swap(strides), offset });
}

/** Repeats dimensions of size 1, as PyTorch broadcasts. Throws `ShapeError` if the shapes do not match. */
export function broadcast(x: Value, shape: Shape): Value {
  if (sameShape(x.shape, shape)) return x;
  const missingDims = shape.length - x.shape.length;
  const isBroadcastable =
    missingDims >= 0 && x.shape.every((size, dim) => size === 1 || size === shape[missingDims + dim]);
  if (!isBroadcastable) throw new ShapeError(`[${x.shape}] cannot be broadcast to [${shape}]`);
  const ownStrides = stridesOf(x.shape);
  const strides = shape.map((_, dim) =>
    dim < missingDims || x.shape[dim - missingDims] === 1 ? 0 : (ownStrides[dim - missingDims] as number),
  );
  return copyView(x, { shape, strides, offset: 0 });
}

/** The shape to which values of these shapes are broadcast. Throws `ShapeError` if there is none. */
export function commonShape(...shapes: readonly Shape[]): Shape {
  const rank = Math.max(...shapes.map(({ length }) => length));
  return Array.from({ length: rank }, (_, dim) => {
    const sizes = shapes.map((shape) => shape[dim - (rank - shape.length)] ?? 1);
    const size = sizes.find((each) => each !== 1) ?? 1;
    if (sizes.every((each) => each === 1 || each === size)) return size;
    throw new ShapeError(
      `the shapes ${shapes.map((shape) => `[${shape}]`).join(" and ")} cannot be broadcast`,
    );
  });
}
