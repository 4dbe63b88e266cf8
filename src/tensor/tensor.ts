/** The tensor: an element type, a shape, and memory of one backend. */
import type { Backend } from "../backends/backend.js";
import { DisposedError, ShapeError } from "../errors.js";
import { adopt, disown } from "./scope.js";
import { byteLength, type DType, elementCount, type Shape, storageBits } from "./shape.js";
import { Storage } from "./storage.js";

/** What `data()` gives: values for f32 and i32, codes for everything else, FP4 two codes a byte. */
export type TensorData<D extends DType = DType> = D extends "f32"
  ? Float32Array
  : D extends "i32"
    ? Int32Array
    : D extends "bf16" | "f16" | "u16"
      ? Uint16Array
      : D extends "tf32" | "u32"
        ? Uint32Array
        : Uint8Array;

/**
 * A dense row-major array on one backend. It is never moved between backends by itself and lives until
 * `dispose()`, by hand or by the scope it was created in.
 */
export class Tensor<D extends DType = DType> {
  readonly #storage: Storage;
  #disposed = false;

  constructor(
    readonly backend: Backend,
    readonly dtype: D,
    readonly shape: Shape,
    storage?: Storage,
  ) {
    this.#storage = storage ?? new Storage(backend.memory, byteLength(dtype, shape));
    adopt(this);
  }

  /** The number of elements. */
  get size(): number {
    return elementCount(this.shape);
  }

  get byteLength(): number {
    return byteLength(this.dtype, this.shape);
  }

  /** The backend's address of the first element; for backends. Throws `DisposedError` after `dispose()`. */
  get address(): number {
    if (this.#disposed) throw new DisposedError(`a ${this.dtype} [${this.shape}] tensor`);
    return this.#storage.address;
  }

  get disposed(): boolean {
    return this.#disposed;
  }

  /** The same memory in another shape of as many elements. Dispose of both. */
  reshape(shape: Shape): Tensor<D> {
    if (byteLength(this.dtype, shape) !== this.byteLength) {
      throw new ShapeError(
        `reshape: [${this.shape}] has ${this.size} elements, [${shape}] ${elementCount(shape)}`,
      );
    }
    return new Tensor(this.backend, this.dtype, shape, this.#storage.retain());
  }

  /** Reads the elements back; waits for the work enqueued before. */
  async data(): Promise<TensorData<D>> {
    return viewAs(this.dtype, await this.backend.memory.read(this.address, this.byteLength));
  }

  /** As `data`, blocking. */
  dataSync(): TensorData<D> {
    return viewAs(this.dtype, this.backend.memory.readSync(this.address, this.byteLength));
  }

  /** Overwrites the elements with `data`, which must have as many bytes. */
  write(data: ArrayBufferView): this {
    if (data.byteLength !== this.byteLength) {
      throw new ShapeError(
        `${this.dtype} [${this.shape}] takes ${this.byteLength} bytes; the data given have ${data.byteLength}`,
      );
    }
    this.backend.memory.write(this.address, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return this;
  }

  /** Gives the memory back. Safe to call twice. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    disown(this);
    this.#storage.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

function viewAs<D extends DType>(dtype: D, bytes: Uint8Array): TensorData<D> {
  const { buffer, byteOffset, byteLength: length } = bytes;
  const view = (): ArrayBufferView => {
    if (dtype === "f32") return new Float32Array(buffer, byteOffset, length / 4);
    if (dtype === "i32") return new Int32Array(buffer, byteOffset, length / 4);
    if (storageBits(dtype) === 32) return new Uint32Array(buffer, byteOffset, length / 4);
    return storageBits(dtype) === 16 ? new Uint16Array(buffer, byteOffset, length / 2) : bytes;
  };
  return view() as TensorData<D>;
}
