/** Linear memory as the tensors' memory, with its live bytes counted. */
import { DisposedError, OutOfMemoryError } from "../../errors.js";
import type { Memory, Storage } from "../../tensor/storage.js";
import type { MemoryUse } from "../backend.js";
import { waits } from "../captured.js";
import { Recording } from "./capture.js";
import type { Instance } from "./instance.js";

/**
 * From `HALF` on the allocator takes the first free block of a class, whether it fits or not: only a request for the
 * least block of a class is safe. Classes are `CLASS` bytes wide; their least block has `LEAST` more than their edge.
 */
const HALF = 2 ** 29;
const CLASS = 2 ** 25;
const LEAST = 12;

/** Beyond what is asked, so that empty tensors have addresses of their own. */
const SLACK = 16;

/** Bytes that one tensor may have: the allocator's largest block that is safe. */
export const MAX_BLOCK = 31 * CLASS + LEAST - SLACK;

/** Allocation and copies for tensors. Only the main thread's instance allocates. */
export class Heap implements Memory {
  /** Dropped as the backend closes, so that its address space can be taken back, whatever still holds tensors of it. */
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

  /** Memory of a tensor, or of what is counted as one. */
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

  /** Memory that is not counted. Throws `OutOfMemoryError`, which leaves everything as it was. */
  reserve(bytes: number): number {
    const { exports } = this.#instance;
    if (bytes > MAX_BLOCK) {
      throw new OutOfMemoryError(
        bytes,
        this.#live,
        `one piece of memory may have ${MAX_BLOCK} bytes; split what needs more`,
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

  /** Gives back what `reserve` returned. */
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

  /** What `body` does, recorded; nothing is left of it where that throws. */
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

  /** From now on nothing but `free` and `use` works: the backend is gone. */
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

/** What to ask the allocator for, to be sure of `bytes`. */
function blockFor(bytes: number): number {
  return bytes <= HALF ? bytes : Math.ceil((bytes - LEAST) / CLASS) * CLASS + LEAST;
}
