/** The tensor: an element type, a shape, and memory of one backend. */
import type { Backend } from "../backends/backend.js";
import { ArgumentError, DisposedError, DTypeError, ShapeError } from "../errors.js";
import { describe } from "../options.js";
import { bytesOf, type TensorData, viewAs } from "./data.js";
import { adopt, disown } from "./scope.js";
import {
  byteLength,
  type DType,
  elementCount,
  isIndex,
  isWide,
  ownShape,
  type Shape,
  type WideDType,
} from "./shape.js";
import { INSPECT, showTensor } from "./show.js";
import { isOverlap, Storage } from "./storage.js";

export type { TensorData } from "./data.js";

/** Where views may begin, as allocations do on every backend. */
export const VIEW_ALIGNMENT = 256;

/**
 * A dense row-major array on one backend. It is never moved between backends by itself and lives until
 * `dispose()`, by hand or by the scope it was created in.
 *
 * @throws `DisposedError` for a backend that was disposed of.
 */
export class Tensor<D extends DType = DType> {
  readonly #backend: Backend;
  readonly #dtype: D;
  readonly #shape: Shape;
  readonly #byteLength: number;
  readonly #storage: Storage;
  readonly #offset: number;
  #disposed = false;

  /**
   * An uninitialised tensor. The shape is copied unless it is frozen; a size of 0 takes no memory.
   * @throws DTypeError for an unknown type, ShapeError for sizes that are no shape, OutOfMemoryError, ArgumentError without
   * a backend
   */
  constructor(backend: Backend, dtype: D, shape: Shape);
  /** @internal One over `storage` that has been retained for it, from byte `offset` on. */
  constructor(backend: Backend, dtype: D, shape: Shape, storage: Storage, offset: number);
  constructor(backend: Backend, dtype: D, shape: Shape, storage?: Storage, offset = 0) {
    const memory = memoryOf(backend);
    const own = ownShape(shape);
    const bytes = byteLength(dtype, own);
    this.#backend = backend;
    this.#dtype = dtype;
    this.#shape = own;
    this.#byteLength = bytes;
    this.#storage = storage ?? new Storage(memory, bytes);
    this.#offset = offset;
    adopt(this);
  }

  /** Where it lives. */
  get backend(): Backend {
    return this.#backend;
  }

  /** The element type. */
  get dtype(): D {
    return this.#dtype;
  }

  /** Frozen: it says what memory the tensor has. */
  get shape(): Shape {
    return this.#shape;
  }

  /** The number of elements. */
  get size(): number {
    return elementCount(this.#shape);
  }

  /** Bytes of all elements; two 4-bit codes share a byte. */
  get byteLength(): number {
    return this.#byteLength;
  }

  /** The backend's address of the first element; for backends. Throws `DisposedError` after `dispose()`. */
  get address(): number {
    this.#requireAlive();
    return this.#storage.address + this.#offset;
  }

  /** Whether `dispose` was called; a view may still hold the memory. */
  get disposed(): boolean {
    return this.#disposed;
  }

  /** The same memory in another shape of as many elements. Dispose of both. Throws `DisposedError` and `ShapeError`. */
  reshape(shape: Shape): Tensor<D> {
    this.#requireAlive();
    const own = ownShape(shape);
    if (byteLength(this.#dtype, own) !== this.#byteLength) {
      throw new ShapeError(
        `reshape: [${this.#shape}] has ${this.size} elements, [${own}] ${elementCount(own)}`,
      );
    }
    return this.#share(own, this.#offset);
  }

  /**
   * Part of the same memory: `shape`'s elements from element `first` on, in row-major order. Kernels read 16 bytes and
   * more at a time, so a view of several elements begins at a multiple of 256 bytes. Dispose of both. Throws `ShapeError`
   * for a part that is not there or does not begin so, `DisposedError` after `dispose()`.
   */
  view(first: number, shape: Shape): Tensor<D> {
    const own = ownShape(shape);
    const offset = this.#offset + this.#partAt("view", first, own);
    if (offset % VIEW_ALIGNMENT !== 0 && elementCount(own) > 1) {
      throw new ShapeError(
        `view: element ${first} lies at byte ${offset}; a view begins at a multiple of ${VIEW_ALIGNMENT} bytes; slice() copies what lies between`,
      );
    }
    return this.#share(own, offset);
  }

  /** A copy with memory of its own. Throws `DisposedError` after `dispose()`. */
  clone(): Tensor<D> {
    return this.slice(0, this.#shape);
  }

  /**
   * A copy of part of it: `shape`'s elements from element `first` on.
   *
   * @throws `ShapeError` for a part that is not there.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  slice(first: number, shape: Shape): Tensor<D> {
    const own = ownShape(shape);
    const from = this.address + this.#partAt("slice", first, own);
    const made = new Tensor(this.#backend, this.#dtype, own);
    if (made.byteLength > 0) this.#backend.memory.copy(made.address, from, made.byteLength);
    return made;
  }

  /**
   * Overwrites as many elements as `source` has, from element `first` on, with those.
   *
   * @throws `DTypeError` for a source of another type, `ArgumentError` for one of another backend or one that shares memory
   * with what it overwrites, `ShapeError` for a part that is not there.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  paste(source: Tensor<D>, first: number): this {
    if (!(source instanceof Tensor))
      throw new DTypeError(`paste: the source is ${describe(source)}; it must be a ${this.#dtype} tensor`);
    if (source.dtype !== this.#dtype) {
      throw new DTypeError(
        `paste: the source is ${source.dtype}, the target ${this.#dtype}; encode or decode it to ${this.#dtype} first`,
      );
    }
    if (source.backend !== this.#backend) {
      throw new ArgumentError(
        "paste: source and target live on different backends; move the source by data() and tensor()",
      );
    }
    const to = this.address + this.#partAt("paste", first, source.shape);
    const { address: from, byteLength: bytes } = source;
    if (bytes === 0) return this;
    if (isOverlap(from, from + bytes, to, to + bytes)) {
      throw new ArgumentError(
        "paste: the source shares memory with what it overwrites; paste a clone() of it",
      );
    }
    this.#backend.memory.copy(to, from, bytes);
    return this;
  }

  #share(shape: Shape, offset: number): Tensor<D> {
    return new Tensor(this.#backend, this.#dtype, shape, this.#storage.retain(), offset);
  }

  #requireAlive(): void {
    if (this.#disposed) throw new DisposedError(`a ${this.#dtype} [${this.#shape}] tensor`);
  }

  /** The bytes before the elements of `shape`, one that is owned, from element `first` on. */
  #partAt(op: string, first: number, shape: Shape): number {
    this.#requireAlive();
    if (!isIndex(first))
      throw new ShapeError(
        `${op}: first is ${describe(first)}; it is an element's number, an integer from 0`,
      );
    const bytes = byteLength(this.#dtype, shape);
    if (first > this.size || elementCount(shape) > this.size - first) {
      throw new ShapeError(
        `${op}: [${this.#shape}] has ${this.size} elements; [${shape}] from element ${first} on are not all there`,
      );
    }
    const before = byteLength(this.#dtype, [first]);
    return bytes === 0 ? Math.min(before, this.#byteLength) : before;
  }

  /**
   * Reads the elements back; waits for the work enqueued before.
   *
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  async data(): Promise<TensorData<D>> {
    return viewAs(this.#dtype, await this.#backend.memory.read(this.address, this.#byteLength));
  }

  /**
   * As `data`, blocking.
   *
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  dataSync(): TensorData<D> {
    return viewAs(this.#dtype, this.#backend.memory.readSync(this.address, this.#byteLength));
  }

  /**
   * Overwrites all elements. `data` are elements as `data()` gives them, or the tensor's bytes, little endian, as a
   * Uint8Array.
   *
   * @throws `DTypeError` for an array of another kind, `ShapeError` for one of another length, `ArgumentError` for one whose
   * memory was transferred.
   * @throws `DisposedError` for a tensor that was disposed of.
   */
  write(data: TensorData): this {
    const { address } = this;
    const bytes = bytesOf("write", this.#dtype, data);
    if (bytes.length !== this.#byteLength) {
      throw new ShapeError(
        `write: ${this.#dtype} [${this.#shape}] takes ${this.#byteLength} bytes; the data given have ${bytes.length}`,
      );
    }
    this.#backend.memory.write(address, bytes);
    return this;
  }

  /** Gives the memory back. Safe to call twice. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    disown(this);
    this.#storage.release();
  }

  /** As `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Type, shape, backend and up to eight elements, for people. Waits for the work enqueued before; never throws. */
  toString(): string {
    return showTensor(this);
  }

  /** What `console.log` prints in Node; as `toString`. */
  [INSPECT](): string {
    return showTensor(this);
  }
}

/** Throws `ArgumentError` for what is no backend: checked here too, where the memory is taken. */
function memoryOf(backend: Backend): Backend["memory"] {
  const memory = (backend as Partial<Backend> | undefined | null)?.memory;
  if (typeof memory?.allocate === "function") return memory;
  throw new ArgumentError(
    `a tensor needs a backend; ${describe(backend)} was given; give what await openBackend("wasm") gives`,
  );
}

/** Whether `x` is a tensor of one of these types; what is quantized has a type too, and is none. */
export function hasType<D extends DType>(x: Tensor, ...types: readonly D[]): x is Tensor<D> {
  return x instanceof Tensor && (types as readonly DType[]).includes(x.dtype);
}

/** Whether quantizers read and dequantizers write it. */
export function hasWideType(x: Tensor): x is Tensor<WideDType> {
  return x instanceof Tensor && isWide(x.dtype);
}
