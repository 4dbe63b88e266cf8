/** The tensor: an element type, a shape, and memory of one backend. */
import type { Backend } from "../backends/backend.js";
import { DisposedError, ShapeError } from "../errors.js";
import { adopt, disown } from "./scope.js";
import {
  byteLength,
  type DType,
  elementCount,
  isWide,
  type Shape,
  storageBits,
  type WideDType,
} from "./shape.js";
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

/** Where views may begin, as allocations do on every backend. */
export const VIEW_ALIGNMENT = 256;

/**
 * A dense row-major array on one backend. It is never moved between backends by itself and lives until
 * `dispose()`, by hand or by the scope it was created in.
 */
export class Tensor<D extends DType = DType> {
  readonly #storage: Storage;
  readonly #offset: number;
  #disposed = false;

  constructor(
    readonly backend: Backend,
    readonly dtype: D,
    readonly shape: Shape,
    storage?: Storage,
    /** Bytes before the first element. */
    offset = 0,
  ) {
    this.#storage = storage ?? new Storage(backend.memory, byteLength(dtype, shape));
    this.#offset = offset;
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
    return this.#storage.address + this.#offset;
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
    return new Tensor(this.backend, this.dtype, shape, this.#storage.retain(), this.#offset);
  }

  /**
   * Part of the same memory: `shape`'s elements from element `first` on, in row-major order. Kernels read 16 bytes and
   * more at a time, so a view of several elements begins at a multiple of 256 bytes. Dispose of both. Throws `ShapeError`
   * for a part that is not there or does not begin so.
   */
  view(first: number, shape: Shape): Tensor<D> {
    const offset = this.#offset + this.#partAt("view", first, shape);
    if (offset % VIEW_ALIGNMENT !== 0 && elementCount(shape) > 1) {
      throw new ShapeError(
        `view: element ${first} lies at byte ${offset}; a view begins at a multiple of ${VIEW_ALIGNMENT} bytes; slice() copies what lies between`,
      );
    }
    return new Tensor(this.backend, this.dtype, shape, this.#storage.retain(), offset);
  }

  /** A copy with memory of its own. */
  clone(): Tensor<D> {
    const made = new Tensor(this.backend, this.dtype, this.shape);
    if (this.byteLength > 0) this.backend.memory.copy(made.address, this.address, this.byteLength);
    return made;
  }

  /** A copy of part of it: `shape`'s elements from element `first` on. Throws `ShapeError` for a part that is not there. */
  slice(first: number, shape: Shape): Tensor<D> {
    const offset = this.#partAt("slice", first, shape);
    const made = new Tensor(this.backend, this.dtype, shape);
    if (made.byteLength > 0) this.backend.memory.copy(made.address, this.address + offset, made.byteLength);
    return made;
  }

  /** Overwrites as many elements as `source` has, from element `first` on, with those. Throws as `slice`. */
  paste(source: Tensor<D>, first: number): this {
    const offset = this.#partAt("paste", first, source.shape);
    if (source.byteLength > 0)
      this.backend.memory.copy(this.address + offset, source.address, source.byteLength);
    return this;
  }

  /** The bytes before `shape`'s elements from element `first` on. */
  #partAt(op: string, first: number, shape: Shape): number {
    const before = byteLength(this.dtype, [first]);
    if (before + byteLength(this.dtype, shape) <= this.byteLength) return before;
    throw new ShapeError(
      `${op}: [${this.shape}] has ${this.size} elements; [${shape}] from element ${first} on are not all there`,
    );
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

/** Whether `x` is a tensor of one of these types; what is quantized has a type too, and is none. */
export function hasType<D extends DType>(x: Tensor, ...types: readonly D[]): x is Tensor<D> {
  return x instanceof Tensor && (types as readonly DType[]).includes(x.dtype);
}

/** Whether quantizers read and dequantizers write it. */
export function hasWideType(x: Tensor): x is Tensor<WideDType> {
  return x instanceof Tensor && isWide(x.dtype);
}
