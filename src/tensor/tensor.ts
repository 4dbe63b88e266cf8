/** The tensor: a dtype, a shape, and memory on one backend. */
import type { Backend } from "../backends/backend.js";
import { guardReceivers, inherits, notItself, unwrapHint } from "../brand.js";
import { ArgumentError, DisposedError, DTypeError, ShapeError } from "../errors.js";
import { describe } from "../options.js";
import { bytesOf, type TensorData, viewAs } from "./data.js";
import { memoryOf } from "./memory.js";
import { adopt, disown, OWNER, type Scope } from "./scope.js";
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
import { isOverlap, type Memory, Storage } from "./storage.js";

export type { TensorData } from "./data.js";

/** The key of the method that gives a disposed handle memory again. */
export const REVIVE = Symbol("revive");

/** The alignment of views in bytes. Allocations have the same alignment on every backend. */
export const VIEW_ALIGNMENT = 256;

/** The accessors that each operation reads many times. */
const FREQUENT = ["backend", "dtype", "shape", "byteLength", "address", "disposed", "isMeta"] as const;

/** Whether the tensor under construction gets no memory. */
let withoutMemory = false;

/** The error for a use of a tensor without memory. `what` names the tensor. */
export function metaError(label: string): ArgumentError {
  return new ArgumentError(
    `${label} has no memory, because its module was created by onMetaDevice; call materializeParameters() of the module or load a checkpoint into it first`,
  );
}

/** The memory of the tensor under construction, if it shares memory. */
let location: { readonly storage: Storage; readonly offset: number } | undefined;

/** Whether `x` is a tensor, and not a proxy of one or another object with its prototype. It is faster than `instanceof`. */
export let isTensor: (x: unknown) => x is Tensor;

/** Returns the memory in which a tensor lies. */
export let memoryOfTensor: (x: Tensor) => Memory;

/** Returns the block of memory of a tensor, which views share. */
export let storageOf: (x: Tensor) => Storage;

/**
 * Creates a tensor in `storage`, starting at byte `offset`. The caller has already retained `storage` for this tensor, and has
 * checked that it is large enough.
 */
export function tensorAt<D extends DType>(
  backend: Backend,
  dtype: D,
  shape: Shape,
  storage: Storage,
  offset: number,
): Tensor<D> {
  location = { storage, offset };
  try {
    return new Tensor(backend, dtype, shape);
  } finally {
    location = undefined;
  }
}

/** Creates a tensor without memory. `REVIVE` gives it the memory of another one. */
export function metaTensor<D extends DType>(backend: Backend, dtype: D, shape: Shape): Tensor<D> {
  withoutMemory = true;
  try {
    return new Tensor(backend, dtype, shape);
  } finally {
    withoutMemory = false;
  }
}

/**
 * A dense row-major array on one backend. It stays on its backend until `dispose()` is called, by hand or by the scope in which
 * it was created.
 *
 * @throws `DisposedError` for a disposed backend.
 */
export class Tensor<D extends DType = DType> {
  readonly #backend: Backend;
  readonly #dtype: D;
  readonly #shape: Shape;
  readonly #byteLength: number;
  #storage: Storage;
  #offset: number;
  #disposed = false;
  #isMeta = false;
  #owner: Scope | undefined;

  static {
    isTensor = (x): x is Tensor => typeof x === "object" && x !== null && #storage in x;
    memoryOfTensor = (x) => x.#storage.memory;
    storageOf = (x) => x.#storage;
    guardReceivers(this, isTensor, FREQUENT);
  }

  /** @internal Whether `x` is a tensor, and not a proxy of one or another object with its prototype. */
  static [Symbol.hasInstance](x: unknown): boolean {
    return isTensor(x) && inherits(this, x);
  }

  /**
   * Creates an uninitialized tensor. The shape is copied. A tensor with a dimension of size 0 takes no memory. The class cannot
   * be extended, and its objects are not extensible, because backends rely on their fields.
   *
   * @throws `DTypeError` for an unknown dtype, `ShapeError` for an invalid shape, `OutOfMemoryError` if the memory is not
   * available, `ArgumentError` if `backend` is not a backend, or for a class that extends this one, `DisposedError` for a
   * disposed backend.
   */
  constructor(backend: Backend, dtype: D, shape: Shape) {
    if (new.target !== Tensor)
      throw new ArgumentError("Tensor: the class cannot be extended; keep a tensor in a field");
    const sharedLocation = location;
    location = undefined;
    const hasNoMemory = withoutMemory;
    withoutMemory = false;
    const shapeCopy = ownShape(shape);
    const bytes = byteLength(dtype, shapeCopy);
    this.#backend = backend;
    this.#dtype = dtype;
    this.#shape = shapeCopy;
    this.#byteLength = bytes;
    this.#storage = sharedLocation
      ? sharedLocation.storage
      : new Storage(memoryOf(backend), hasNoMemory ? 0 : bytes);
    this.#offset = sharedLocation ? sharedLocation.offset : 0;
    Object.preventExtensions(this);
    if (hasNoMemory) {
      this.#storage.release();
      this.#isMeta = true;
    } else adopt(this);
  }

  /** Returns `x`. Throws `ArgumentError` if it is not a tensor itself. It is faster than the guard of the other members. */
  static #itself<D extends DType>(x: Tensor<D>, key: (typeof FREQUENT)[number]): Tensor<D> {
    if (isTensor(x)) return x;
    throw notItself(this, key, x);
  }

  /** @internal The scope that owns the tensor. */
  get [OWNER](): Scope | undefined {
    return this.#owner;
  }

  /** @internal Sets the scope that owns it. */
  set [OWNER](scope: Scope | undefined) {
    this.#owner = scope;
  }

  /** The backend on which the tensor lives. */
  get backend(): Backend {
    return Tensor.#itself(this, "backend").#backend;
  }

  /** The dtype of the elements. */
  get dtype(): D {
    return Tensor.#itself(this, "dtype").#dtype;
  }

  /** The shape. It is frozen, because it determines the memory of the tensor. */
  get shape(): Shape {
    return Tensor.#itself(this, "shape").#shape;
  }

  /** The number of elements. */
  get size(): number {
    return elementCount(this.#shape);
  }

  /** The size of all elements in bytes. Two 4-bit codes share a byte. */
  get byteLength(): number {
    return Tensor.#itself(this, "byteLength").#byteLength;
  }

  /** The backend's address of the first element, for use by backends. Throws `DisposedError` after `dispose()`. */
  get address(): number {
    const x = Tensor.#itself(this, "address");
    x.#requireAlive();
    return x.#storage.address + x.#offset;
  }

  /** Whether the tensor has no memory yet, as the parameters of modules that `onMetaDevice` creates. */
  get isMeta(): boolean {
    return Tensor.#itself(this, "isMeta").#isMeta;
  }

  /** Whether `dispose` was called. The memory may still be held by a view. */
  get disposed(): boolean {
    return Tensor.#itself(this, "disposed").#disposed;
  }

  /**
   * Returns a tensor that shares this memory and has another shape with the same number of elements. Both must be disposed of.
   * Throws `DisposedError` and `ShapeError`.
   */
  reshape(shape: Shape): Tensor<D> {
    this.#requireAlive();
    const shapeCopy = ownShape(shape);
    if (byteLength(this.#dtype, shapeCopy) !== this.#byteLength) {
      throw new ShapeError(
        `reshape: [${this.#shape}] has ${this.size} elements, [${shapeCopy}] ${elementCount(shapeCopy)}`,
      );
    }
    return this.#share(shapeCopy, this.#offset);
  }

  /**
   * Returns a tensor of `shape` that shares this memory from element `first` on, in row-major order. A view of more than one
   * element must begin at a multiple of 256 bytes, because kernels read 16 or more bytes at a time. Both tensors must be
   * disposed of. Throws `ShapeError` for a view that is unaligned or exceeds the tensor, `DisposedError` after `dispose()`.
   */
  view(first: number, shape: Shape): Tensor<D> {
    const shapeCopy = ownShape(shape);
    const offset = this.#offset + this.#partAt("view", first, shapeCopy);
    if (offset % VIEW_ALIGNMENT !== 0 && elementCount(shapeCopy) > 1) {
      throw new ShapeError(
        `view: element ${first} lies at byte ${offset}; a view begins at a multiple of ${VIEW_ALIGNMENT} bytes; slice() copies what lies between`,
      );
    }
    return this.#share(shapeCopy, offset);
  }

  /** Returns a copy in new memory. Throws `DisposedError` after `dispose()`. */
  clone(): Tensor<D> {
    return this.slice(0, this.#shape);
  }

  /**
   * Returns a copy, in new memory, of the elements from `first` on, as a tensor of `shape`.
   *
   * @throws `ShapeError` if the range exceeds the tensor.
   * @throws `DisposedError` for a disposed tensor.
   */
  slice(first: number, shape: Shape): Tensor<D> {
    const shapeCopy = ownShape(shape);
    const from = this.address + this.#partAt("slice", first, shapeCopy);
    const copy = new Tensor(this.#backend, this.#dtype, shapeCopy);
    if (copy.byteLength > 0) this.#storage.memory.copy(copy.address, from, copy.byteLength);
    return copy;
  }

  /**
   * Overwrites the elements from `first` on with the elements of `source`.
   *
   * @throws `DTypeError` for a source of another dtype, `ArgumentError` for a source on another backend or one that overlaps
   * the overwritten elements, `ShapeError` if the range exceeds the tensor.
   * @throws `DisposedError` for a disposed tensor.
   */
  paste(source: Tensor<D>, first: number): this {
    if (!isTensor(source))
      throw new DTypeError(
        `paste: the source is ${describe(source)}; it must be a ${this.#dtype} tensor${unwrapHint(Tensor, source)}`,
      );
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
    this.#storage.memory.copy(to, from, bytes);
    return this;
  }

  #share(shape: Shape, offset: number): Tensor<D> {
    return tensorAt(this.#backend, this.#dtype, shape, this.#storage.retain(), offset);
  }

  #requireAlive(): void {
    if (this.#isMeta) throw metaError(`a ${this.#dtype} [${this.#shape}] tensor`);
    if (this.#disposed) throw new DisposedError(`a ${this.#dtype} [${this.#shape}] tensor`);
  }

  /**
   * Checks that the elements of `shape` from `first` on exist, and returns their byte offset. `shape` must come from
   * `ownShape`.
   */
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
   * Copies the elements to the host. The promise resolves after the work enqueued before is done.
   *
   * @throws `DisposedError` for a disposed tensor.
   */
  async data(): Promise<TensorData<D>> {
    return viewAs(this.#dtype, await this.#storage.memory.read(this.address, this.#byteLength));
  }

  /**
   * Copies the elements to the host, blocking until the work enqueued before is done.
   *
   * @throws `DisposedError` for a disposed tensor.
   */
  dataSync(): TensorData<D> {
    return viewAs(this.#dtype, this.#storage.memory.readSync(this.address, this.#byteLength));
  }

  /**
   * Overwrites all elements. `data` holds elements as `data()` returns them, or is a Uint8Array of the tensor's bytes in
   * little-endian order.
   *
   * @throws `DTypeError` for another kind of array, `ShapeError` for a wrong length, `ArgumentError` for an array whose memory
   * was transferred.
   * @throws `DisposedError` for a disposed tensor.
   */
  write(data: TensorData): this {
    const { address } = this;
    const bytes = bytesOf("write", this.#dtype, data);
    if (bytes.length !== this.#byteLength) {
      throw new ShapeError(
        `write: ${this.#dtype} [${this.#shape}] takes ${this.#byteLength} bytes; the data given have ${bytes.length}`,
      );
    }
    this.#storage.memory.write(address, bytes);
    return this;
  }

  /**
   * @internal Makes this handle, which is disposed or has no memory yet, share the memory of `source`, a tensor with the same
   * dtype and size. No scope owns it.
   */
  [REVIVE](source: Tensor<D>): void {
    const needsMemory = this.#disposed || this.#isMeta;
    if (!needsMemory || source.dtype !== this.#dtype || source.byteLength !== this.#byteLength)
      throw new ArgumentError("a tensor gets memory again after dispose(), that of a tensor like it");
    source.#requireAlive();
    this.#storage = source.#storage.retain();
    this.#offset = source.#offset;
    this.#disposed = false;
    this.#isMeta = false;
  }

  /** Releases the memory, which is freed when no view holds it. A second call does nothing. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.#isMeta) {
      this.#isMeta = false;
      return;
    }
    disown(this);
    this.#storage.release();
  }

  /** Calls `dispose` at the end of a `using` declaration's block. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  /**
   * Returns a readable description: dtype, shape, backend and the first eight elements. It waits for the work enqueued before
   * and never throws.
   */
  toString(): string {
    return showTensor(this);
  }

  /** Returns `toString()`, which `console.log` prints in Node. */
  [INSPECT](): string {
    return showTensor(this);
  }
}

/**
 * Whether `x` is a plain tensor of one of these dtypes. A quantized tensor has a nominal dtype too, but the result is false for
 * it.
 */
export function hasType<D extends DType>(x: Tensor, ...types: readonly D[]): x is Tensor<D> {
  return isTensor(x) && (types as readonly DType[]).includes(x.dtype);
}

/** Whether `x` is a plain tensor of dtype f32, bf16 or f16. */
export function hasWideType(x: Tensor): x is Tensor<WideDType> {
  return isTensor(x) && isWide(x.dtype);
}

/** Returns the elements of x from `first` on as a tensor of `shape`: a view, or a copy where no view can begin. */
export function viewOrSlice<T extends Tensor>(x: T, first: number, shape: Shape): T {
  const isAligned = byteLength(x.dtype, [first]) % VIEW_ALIGNMENT === 0;
  return (isAligned ? x.view(first, shape) : x.slice(first, shape)) as T;
}
