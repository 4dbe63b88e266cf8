/** Creation of tensors, uninitialized, zero or from host data. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError, DTypeError } from "../errors.js";
import { describe, elementAt, isArray, listLength } from "../options.js";
import { hostArray } from "../random.js";
import { arrayOf, asPlain, kindOf } from "../tensor/data.js";
import { type DType, type Shape, storageBits } from "../tensor/shape.js";
import { memoryOfTensor, Tensor, type TensorData } from "../tensor/tensor.js";

/**
 * Creates an uninitialized tensor.
 *
 * @throws `DTypeError` for an unknown dtype, `ShapeError` for an invalid shape, `OutOfMemoryError` if the memory is not
 * available.
 * @throws `ArgumentError` for an argument that is not a backend, `DisposedError` for a disposed backend.
 */
export function empty<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  requireBackend("empty", backend);
  return new Tensor(backend, dtype, shape);
}

/**
 * Creates a tensor whose bytes are all zero.
 *
 * @throws `DTypeError`, `ShapeError` and `OutOfMemoryError` as `empty` does, `ArgumentError` for an argument that is not a
 * backend, `DisposedError` for a disposed backend.
 */
export function zeros<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  requireBackend("zeros", backend);
  const out = new Tensor(backend, dtype, shape);
  setZero(out);
  return out;
}

/** A block of zeros on the host. Larger tensors are filled by copies on the device. */
const ZEROS = new Uint8Array(2 ** 16);

/** Sets all bytes of `x` to zero. */
export function setZero(x: Tensor): void {
  const { address, byteLength } = x;
  const memory = memoryOfTensor(x);
  let done = Math.min(byteLength, ZEROS.length);
  memory.write(address, ZEROS.subarray(0, done));
  while (done < byteLength) {
    const piece = Math.min(done, byteLength - done);
    memory.copy(address + done, address, piece);
    done += piece;
  }
}

/**
 * Creates a tensor from its little-endian bytes, as files store them. It is one-dimensional unless a shape is given. Throws as
 * `empty` does, and `ShapeError` for a wrong number of bytes.
 */
export function fromBytes<D extends DType>(
  backend: Backend,
  bytes: Uint8Array,
  shape: Shape | undefined,
  dtype: D,
): Tensor<D> {
  requireBackend("tensor", backend);
  return filled(shaped(backend, dtype, shape, bytes), bytes);
}

/**
 * Creates a tensor from host data. It is one-dimensional unless a shape is given. `data` holds the elements as `Tensor.data()`
 * returns them: values for f32 and i32, codes for the other dtypes. An array of plain numbers is accepted for f32 only; use
 * `encode` to convert to a narrower format.
 *
 * @throws `DTypeError` for the wrong kind of array, `ArgumentError` for elements that are not numbers, a typed array whose
 * memory was transferred, or an argument that is not a backend, `ShapeError` for a wrong number of elements, `DisposedError`
 * for a disposed backend.
 */
export function tensor<D extends DType = "f32">(
  backend: Backend,
  data: TensorData | readonly number[],
  shape?: Shape,
  dtype?: D,
): Tensor<D> {
  requireBackend("tensor", backend);
  const type = dtype === undefined ? ("f32" as D) : dtype;
  const elements = elementsOf(type, data);
  return filled(shaped(backend, type, shape, elements), elements);
}

/** Creates a tensor of the given shape. Without a shape it is one-dimensional, with the number of elements of the data. */
function shaped<D extends DType>(
  backend: Backend,
  dtype: D,
  shape: Shape | undefined,
  { byteLength }: TensorData,
): Tensor<D> {
  return new Tensor(backend, dtype, shape === undefined ? [(byteLength * 8) / storageBits(dtype)] : shape);
}

/** Writes the elements to `out` and returns it. If that throws, `out` is disposed of. */
function filled<D extends DType>(out: Tensor<D>, elements: TensorData): Tensor<D> {
  try {
    return out.write(elements);
  } catch (error) {
    out.dispose();
    throw error;
  }
}

function elementsOf(dtype: DType, data: TensorData | readonly number[]): TensorData {
  const [kind, expected] = [kindOf(data), arrayOf(dtype)];
  if (kind === expected) return asPlain("tensor", expected, data as TensorData);
  if (!isArray(data)) {
    throw new DTypeError(
      `tensor: ${dtype} takes a ${expected}, as data() gives it${dtype === "f32" ? ", or numbers" : ""}; ${kind ? `a ${kind}` : describe(data)} was given; convert it by ${expected}.from(), or give the dtype that goes with it; bytes go by empty() and write()`,
    );
  }
  if (dtype !== "f32") {
    throw new ArgumentError(
      `tensor: numbers make an f32 tensor; encode that to ${dtype}, or give its elements as a ${expected}`,
    );
  }
  return numbers(data);
}

/** Converts to f32. Throws `ArgumentError` if an element is missing or not a number. */
function numbers(data: readonly unknown[]): Float32Array {
  const count = listLength(data);
  if (!(count >= 0)) throw notNumber(data, 0);
  // before memory is allocated, because an empty array may say that it has billions of elements
  const first = count > 0 ? [numberAt(data, 0)] : [];
  const values = hostArray(Float32Array, count);
  values.set(first);
  for (let i = 1; i < count; i++) values[i] = numberAt(data, i);
  return values;
}

/** Returns element i, which is read once. */
function numberAt(data: readonly unknown[], i: number): number {
  const value = elementAt("tensor", "data", data, i);
  if (typeof value === "number") return value;
  throw notNumber(value, i);
}

function notNumber(value: unknown, i: number): ArgumentError {
  return new ArgumentError(
    isArray(value) || kindOf(value)
      ? "tensor: the data are nested; give data.flat() and the shape, such as [2, 3]"
      : `tensor: element ${i} of the data is ${describe(value)}; numbers are needed`,
  );
}
