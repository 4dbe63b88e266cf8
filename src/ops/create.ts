/** Tensors from host data. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError, DTypeError } from "../errors.js";
import { describe } from "../options.js";
import { arrayOf, kindOf } from "../tensor/data.js";
import { type DType, type Shape, storageBits } from "../tensor/shape.js";
import { Tensor, type TensorData } from "../tensor/tensor.js";

/**
 * An uninitialized tensor.
 *
 * @throws `DTypeError`, `ShapeError`, and `OutOfMemoryError` if it does not fit in memory.
 * @throws `ArgumentError` for anything but a backend, `DisposedError` for a backend that was disposed of.
 */
export function empty<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  requireBackend("empty", backend);
  return new Tensor(backend, dtype, shape);
}

/**
 * A tensor whose bytes are all zero.
 *
 * @throws `DTypeError`, `ShapeError` or `OutOfMemoryError` as `empty`, `ArgumentError` for anything but a backend,
 * `DisposedError` for a backend that was disposed of.
 */
export function zeros<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  requireBackend("zeros", backend);
  const made = new Tensor(backend, dtype, shape);
  setZero(made);
  return made;
}

/** Zeros on the host; more are copied on the backend. */
const ZEROS = new Uint8Array(2 ** 16);

/** Makes all bytes of `x` zero. */
export function setZero(x: Tensor): void {
  const { address, byteLength, backend } = x;
  let done = Math.min(byteLength, ZEROS.length);
  backend.memory.write(address, ZEROS.subarray(0, done));
  while (done < byteLength) {
    const piece = Math.min(done, byteLength - done);
    backend.memory.copy(address + done, address, piece);
    done += piece;
  }
}

/**
 * A tensor from its little-endian bytes, as in files; one-dimensional unless a shape is given. Throws as `empty`, and
 * `ShapeError` for a wrong length.
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
 * A tensor of values or codes, one-dimensional unless a shape is given. `data` are the elements as `Tensor.data()` returns
 * them. Plain numbers are accepted for f32 only, because narrowing is up to `encode`.
 *
 * @throws `DTypeError` for an array of another kind, `ArgumentError` for elements that are not numbers, for memory that was
 * transferred and for anything but a backend, `ShapeError` for a wrong length, `DisposedError` for a backend that was disposed
 * of.
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

/** Makes a tensor of `shape`, by default one-dimensional. */
function shaped<D extends DType>(
  backend: Backend,
  dtype: D,
  shape: Shape | undefined,
  { byteLength }: TensorData,
): Tensor<D> {
  return new Tensor(backend, dtype, shape === undefined ? [(byteLength * 8) / storageBits(dtype)] : shape);
}

/** Fills `made` with these elements; disposes of it if they do not fit. */
function filled<D extends DType>(made: Tensor<D>, elements: TensorData): Tensor<D> {
  try {
    return made.write(elements);
  } catch (error) {
    made.dispose();
    throw error;
  }
}

function elementsOf(dtype: DType, data: TensorData | readonly number[]): TensorData {
  const [kind, wanted] = [kindOf(data), arrayOf(dtype)];
  if (kind === wanted) return data as TensorData;
  if (!Array.isArray(data)) {
    throw new DTypeError(
      `tensor: ${dtype} takes a ${wanted}, as data() gives it${dtype === "f32" ? ", or numbers" : ""}; ${kind ? `a ${kind}` : describe(data)} was given; convert it by ${wanted}.from(), or give the dtype that goes with it; bytes go by empty() and write()`,
    );
  }
  if (dtype !== "f32") {
    throw new ArgumentError(
      `tensor: numbers make an f32 tensor; encode that to ${dtype}, or give its elements as a ${wanted}`,
    );
  }
  return numbers(data);
}

/** Throws `ArgumentError` unless all elements are present and numbers. */
function numbers(data: readonly unknown[]): Float32Array {
  const values = new Float32Array(data.length);
  for (let i = 0; i < values.length; i++) {
    const value = data[i];
    if (typeof value !== "number") throw notNumber(value, i);
    values[i] = value;
  }
  return values;
}

function notNumber(value: unknown, i: number): ArgumentError {
  return new ArgumentError(
    Array.isArray(value) || kindOf(value)
      ? "tensor: the data are nested; give data.flat() and the shape, such as [2, 3]"
      : `tensor: element ${i} of the data is ${describe(value)}; numbers are needed`,
  );
}
