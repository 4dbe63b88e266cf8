/** The linear WebAssembly memory as memory of tensors, with a count of live bytes. */
import { DisposedError, OutOfMemoryError } from "../../errors.js";
import type { HostCopy, Memory, Storage } from "../../tensor/storage.js";
import type { MemoryUse } from "../backend.js";
import { waits } from "../captured.js";
import { Recording } from "./capture.js";
import type { Instance } from "./instance.js";

/**
 * Limits of the allocator in assembly/. For requests of at least `HALF` bytes, it takes the first free block of a size class
 * without checking that the block is large enough. Therefore only a request for the smallest size of a class is safe. Classes are
 * `CLASS` bytes apart; the smallest size of a class is `CLASS_OFFSET` bytes above the lower bound of the class.
 */
const HALF = 2 ** 29;
const CLASS = 2 ** 25;
const CLASS_OFFSET = 12;

/** Extra bytes per block. They give empty tensors distinct addresses. */
const SLACK = 16;

/** The maximum size of a tensor in bytes, which is the largest safe request. */
export const MAX_BLOCK = 31 * CLASS + CLASS_OFFSET - SLACK;

/** Allocation and copies of memory for tensors. Only the main thread allocates. */
export class Heap implements Memory {
  /**
   * The instance. It is cleared when the backend closes, so that its memory can be collected even if tensors still refer to
   * this heap.
   */
  #open: Instance | undefined;
  readonly #sizes = new Map<number, number>();
  #live = 0;
  #recording: Recording | undefined;
  used: ((block: Storage) => void) | undefined;

  constructor(instance: Instance) {
    this.#open = instance;
  }

  get closed(): boolean {
    return this.#open === undefined;
  }

  /** Allocates memory for a tensor. It counts in `use()`. */
  allocate(bytes: number): number {
    const address = this.reserve(bytes);
    this.#sizes.set(address, bytes);
    this.#live += bytes;
    return address;
  }

  free(address: number): void {
    const bytes = this.#sizes.get(address);
    if (bytes === undefined) return;
    this.#sizes.delete(address);
    this.#live -= bytes;
    this.release(address);
  }

  /** Allocates memory that does not count in `use()`. Throws `OutOfMemoryError`, with nothing changed. */
  reserve(bytes: number): number {
    const { exports } = this.#instance;
    if (bytes > MAX_BLOCK) {
      throw new OutOfMemoryError(
        bytes,
        this.#live,
        `one allocation may have at most ${MAX_BLOCK} bytes; split the tensor`,
      );
    }
    try {
      return exports.reserve(blockFor(bytes + SLACK)) >>> 0;
    } catch {
      throw new OutOfMemoryError(
        bytes,
        this.#live,
        "dispose of tensors that are no longer needed, or use a scope",
      );
    }
  }

  /** Frees memory that `reserve` returned. */
  release(address: number): void {
    this.#open?.exports.release(address);
  }

  write(address: number, bytes: Uint8Array): void {
    const write = (values: Uint8Array): void => {
      new Uint8Array(this.#instance.memory.buffer, address, values.length).set(values);
    };
    if (this.#recording) this.#recording.add(write.bind(undefined, bytes.slice()));
    else write(bytes);
  }

  copy(to: number, from: number, bytes: number): void {
    const copy = (): void => {
      new Uint8Array(this.#instance.memory.buffer).copyWithin(to, from, from + bytes);
    };
    if (this.#recording) this.#recording.add(copy);
    else copy();
  }

  async read(address: number, bytes: number): Promise<Uint8Array> {
    return this.readSync(address, bytes);
  }

  readSync(address: number, bytes: number): Uint8Array {
    return this.#bytes(address, bytes).slice();
  }

  /** A copy in JavaScript's memory. Recorded work would read the bytes only when it is replayed, so it cannot move them. */
  copyToHost(address: number, bytes: number): HostCopy {
    if (this.#recording) throw waits("a tensor is moved to the host");
    const copy = this.readSync(address, bytes);
    return {
      restore: (to) => {
        if (this.#recording) throw waits("a tensor is moved back from the host");
        this.write(to, copy);
      },
      free: () => undefined,
    };
  }

  readInto(address: number, into: Uint8Array): void {
    into.set(this.#bytes(address, into.length));
  }

  /** The bytes of a tensor that is read. */
  #bytes(address: number, bytes: number): Uint8Array {
    if (this.#recording) throw waits("a tensor is read");
    return new Uint8Array(this.#instance.memory.buffer, address, bytes);
  }

  get recording(): Recording | undefined {
    return this.#recording;
  }

  /** Records the work of `body`. If `body` throws, nothing is kept. */
  record(body: () => void): Recording {
    if (this.#recording) throw waits("another capture begins");
    const recording = new Recording();
    this.#recording = recording;
    this.used = (block) => recording.memory.hold(block);
    try {
      body();
      return recording;
    } catch (error) {
      recording.dispose();
      throw error;
    } finally {
      this.#recording = undefined;
      this.used = undefined;
    }
  }

  /** Closes the heap. Afterwards only `free` and `use` may be called. */
  close(): void {
    this.#open = undefined;
  }

  get #instance(): Instance {
    if (!this.#open) throw new DisposedError("the wasm backend");
    return this.#open;
  }

  use(): MemoryUse {
    const reserved = this.#open?.memory.buffer.byteLength ?? 0;
    return { live: this.#live, reserved, blocks: this.#sizes.size };
  }
}

/** Returns the size to request from the allocator for a block of at least `bytes` bytes. */
function blockFor(bytes: number): number {
  return bytes <= HALF ? bytes : Math.ceil((bytes - CLASS_OFFSET) / CLASS) * CLASS + CLASS_OFFSET;
}
