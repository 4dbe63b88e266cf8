/** Tensors from data of the host. */
import { type Backend, requireBackend } from "../backends/backend.js";
import { ArgumentError } from "../errors.js";
import { type DType, type Shape, storageBits } from "../tensor/shape.js";
import { Tensor } from "../tensor/tensor.js";

/** An uninitialised tensor. */
export function empty<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  return new Tensor(backend, dtype, shape);
}

/** A tensor of zero bytes. */
export function zeros<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  const made = new Tensor(backend, dtype, shape);
  setZero(made);
  return made;
}

/** Zeros of the host, once: where more are wanted, they are copied on the backend. */
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
 * A tensor of values or codes. `data` are the tensor's elements as `Tensor.data()` gives them; numbers are
 * taken for f32 only, because narrowing is `encode`'s business. Throws `ShapeError` on a wrong length.
 */
export function tensor<D extends DType = "f32">(
  backend: Backend,
  data: ArrayBufferView | readonly number[],
  shape?: Shape,
  dtype?: D,
): Tensor<D> {
  requireBackend("tensor", backend);
  const type = dtype ?? ("f32" as D);
  if (!ArrayBuffer.isView(data) && type !== "f32") {
    throw new ArgumentError(
      `tensor: numbers make an f32 tensor; encode that to ${type}, or give codes as a typed array`,
    );
  }
  const view = ArrayBuffer.isView(data) ? data : Float32Array.from(data);
  const length = (view.byteLength * 8) / storageBits(type);
  const made = new Tensor(backend, type, shape ?? [length]);
  try {
    return made.write(view);
  } catch (error) {
    made.dispose();
    throw error;
  }
}
