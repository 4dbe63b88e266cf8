/** Linear memory for tensors, with a count of live bytes. */
import { DisposedError, OutOfMemoryError } from "../../errors.js";
import type { Memory, Storage } from "../../tensor/storage.js";
import type { MemoryUse } from "../backend.js";
import { waits } from "../captured.js";
import { Recording } from "./capture.js";
import type { Instance } from "./instance.js";

/**
 * From `HALF` on, the allocator takes the first free block of a size class without checking that it fits, so only a request for
 * the smallest block of a class is safe. Classes are `CLASS` bytes wide; the smallest block of each is `LEAST` bytes above its
 * lower edge.
 */
const HALF = 2 ** 29;
const CLASS = 2 ** 25;
const LEAST = 12;

/** Extra bytes per block, so that empty tensors have distinct addresses. */
const SLACK = 16;

/** The maximum bytes of a tensor: the allocator's largest safe block. */
export const MAX_BLOCK = 31 * CLASS + LEAST - SLACK;

/** Allocation and copies for tensors. Only the main thread's instance allocates. */
export class Heap implements Memory {
  /** Cleared when the backend closes, so that its address space can be collected even if tensors still refer to this. */
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

  /** Allocates counted memory, for tensors. */
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

  /** Allocates uncounted memory. Throws `OutOfMemoryError`, with nothing changed. */
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

  /** Frees memory of `reserve`. */
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
    if (this.#recording) throw waits("a tensor is read");
    return new Uint8Array(this.#instance.memory.buffer, address, bytes).slice();
  }

  get recording(): Recording | undefined {
    return this.#recording;
  }

  /** Records the work of `body`; if `body` throws, nothing is kept. */
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

  /** Closes the heap: afterwards only `free` and `use` work. */
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

/** The size to request from the allocator to safely get `bytes`. */
function blockFor(bytes: number): number {
  return bytes <= HALF ? bytes : Math.ceil((bytes - LEAST) / CLASS) * CLASS + LEAST;
}
