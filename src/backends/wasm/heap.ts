/** Linear memory as the tensors' memory, with its live bytes counted. */
import { DisposedError, OutOfMemoryError } from "../../errors.js";
import type { Memory } from "../../tensor/storage.js";
import type { MemoryUse } from "../backend.js";
import type { Instance } from "./instance.js";

/** The allocator's largest block. */
const LARGEST_BLOCK = 2 ** 30 - 16;

/** Allocation and copies for tensors. Only the main thread's instance allocates. */
export class Heap implements Memory {
  readonly #instance: Instance;
  readonly #sizes = new Map<number, number>();
  #live = 0;
  closed = false;

  constructor(instance: Instance) {
    this.#instance = instance;
  }

  /** Reserves at least one byte more than asked, so that empty tensors have addresses of their own. */
  allocate(bytes: number): number {
    this.#requireOpen();
    if (bytes > LARGEST_BLOCK) {
      throw new OutOfMemoryError(bytes, this.#live, `one tensor may have ${LARGEST_BLOCK} bytes; split it`);
    }
    let address: number;
    try {
      address = this.#instance.exports.reserve(bytes + 16) >>> 0;
    } catch {
      throw new OutOfMemoryError(
        bytes,
        this.#live,
        "dispose of tensors that are no longer needed, or use a scope",
      );
    }
    this.#sizes.set(address, bytes);
    this.#live += bytes;
    return address;
  }

  free(address: number): void {
    const bytes = this.#sizes.get(address);
    if (bytes === undefined) return;
    this.#sizes.delete(address);
    this.#live -= bytes;
    this.#instance.exports.release(address);
  }

  write(address: number, bytes: Uint8Array): void {
    this.#requireOpen();
    new Uint8Array(this.#instance.memory.buffer, address, bytes.length).set(bytes);
  }

  copy(to: number, from: number, bytes: number): void {
    this.#requireOpen();
    new Uint8Array(this.#instance.memory.buffer).copyWithin(to, from, from + bytes);
  }

  async read(address: number, bytes: number): Promise<Uint8Array> {
    return this.readSync(address, bytes);
  }

  readSync(address: number, bytes: number): Uint8Array {
    this.#requireOpen();
    return new Uint8Array(this.#instance.memory.buffer, address, bytes).slice();
  }

  /** From now on nothing but `free` and `use` works: the backend is gone. */
  close(): void {
    this.closed = true;
  }

  #requireOpen(): void {
    if (this.closed) throw new DisposedError("the wasm backend");
  }

  use(): MemoryUse {
    return { live: this.#live, reserved: this.#instance.memory.buffer.byteLength, blocks: this.#sizes.size };
  }
}
