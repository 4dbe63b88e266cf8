/** Reference-counted memory of a backend. */
import { DisposedError } from "../errors.js";

/**
 * The memory of a backend. An `address` is a number that only the backend interprets. Work is executed in the order in which it
 * was enqueued.
 */
export interface Memory {
  /** Whether all memory was freed, because the backend was disposed of. */
  readonly closed?: boolean;
  /**
   * Allocates `bytes` bytes and returns their address, a multiple of 256. Throws `OutOfMemoryError` if they are not available.
   */
  allocate(bytes: number): number;
  /** Frees a block that `allocate` returned, after the work enqueued before. */
  free(address: number): void;
  /**
   * Copies `bytes` from the host to `address`, after the work enqueued before. The caller may change `bytes` once the call
   * returns.
   */
  write(address: number, bytes: Uint8Array): void;
  /** Copies `bytes` bytes within this memory, after the work enqueued before. The two ranges must not overlap. */
  copy(to: number, from: number, bytes: number): void;
  /** Copies `bytes` bytes to the host, after the work enqueued before. On a GPU the promise resolves when that work is done. */
  read(address: number, bytes: number): Promise<Uint8Array>;
  /** The synchronous form of `read`: it blocks until the bytes are copied. */
  readSync(address: number, bytes: number): Uint8Array;
  /** @internal As `readSync`, into existing memory. Absent if it would not be faster. */
  readInto?(address: number, into: Uint8Array): void;
  /**
   * @internal Copies `bytes` bytes to memory of the host, after the work enqueued before and without waiting for it. Absent if
   * the backend cannot copy asynchronously.
   */
  copyToHost?(address: number, bytes: number): HostCopy;
  /** @internal During a capture, receives each block whose address is requested. */
  readonly used?: ((block: Storage, address: number) => void) | undefined;
}

/** A copy of a block of memory that the host holds. */
export interface HostCopy {
  /** Copies the bytes to `address`, after the work enqueued before. */
  restore(address: number): void;
  /** Frees the copy, after the work enqueued before. */
  free(): void;
}

/** Copies a block to the host. Without `copyToHost` this waits for the work enqueued before. */
function copyToHost(memory: Memory, address: number, bytes: number): HostCopy {
  if (memory.copyToHost) return memory.copyToHost(address, bytes);
  const copy = memory.readSync(address, bytes);
  return { restore: (to) => memory.write(to, copy), free: () => undefined };
}

/**
 * Calls `body` with the address of `bytes` bytes of uninitialized memory, for the work that it enqueues. They are freed after
 * that work.
 */
export function withTemporary<T>(
  memory: Pick<Memory, "allocate" | "free">,
  bytes: number,
  body: (address: number) => T,
): T {
  const address = memory.allocate(bytes);
  try {
    return body(address);
  } finally {
    memory.free(address);
  }
}

/** Whether two byte ranges [begin, end) share a byte. An empty range shares none. */
export function isOverlap(begin: number, end: number, other: number, otherEnd: number): boolean {
  return begin < otherEnd && other < end && begin < end && other < otherEnd;
}

interface Lost {
  readonly memory: Memory;
  readonly bytes: number;
}

/** The leaks that one garbage collection has found, to be reported in a single warning. */
let lost: Lost[] = [];

const leaks = new FinalizationRegistry<Lost>((leak) => {
  if (lost.length === 0) queueMicrotask(warn);
  lost.push(leak);
});

function warn(): void {
  const leaked = lost.filter(({ memory }) => !memory.closed);
  lost = [];
  if (leaked.length === 0) return;
  const bytes = leaked.reduce((sum, each) => sum + each.bytes, 0);
  console.warn(
    `lockstep: tensors of ${bytes} bytes in all were garbage collected without dispose(); their memory stays taken. Use a scope.`,
  );
}

/** A reference-counted block of memory. Views share it. It is freed when the last owner releases it. */
export class Storage {
  #address: number;
  #owners = 1;
  /** The bytes, while the host holds them. */
  #hostCopy: HostCopy | undefined;
  /** Called before the next use of the address. */
  #beforeUse: (() => void) | undefined;
  /** The number of owners that rely on the address. While it is not 0, the block is not moved. */
  #fixed = 0;

  constructor(
    readonly memory: Memory,
    readonly bytes: number,
  ) {
    this.#address = memory.allocate(bytes);
    leaks.register(this, { memory, bytes }, this);
  }

  get disposed(): boolean {
    return this.#owners === 0;
  }

  /** The address of the block in the backend's memory. Throws `DisposedError` if the block is freed. */
  get address(): number {
    if (this.#owners === 0) throw new DisposedError("a tensor's memory");
    if (this.#beforeUse) this.#prepareUse();
    this.memory.used?.(this, this.#address);
    return this.#address;
  }

  #prepareUse(): void {
    this.moveBack();
    const beforeUse = this.#beforeUse;
    this.#beforeUse = undefined;
    beforeUse?.();
  }

  /**
   * Moves the bytes to memory of the host. `moveBack`, or else the next use of the address, moves them back, perhaps to another
   * address. `beforeUse` is called before the next use, also if the bytes are back by then. Does nothing for an empty block, for
   * one whose address is fixed, and for one that was moved before and not used since.
   */
  moveToHost(beforeUse: () => void): void {
    if (this.#owners === 0 || this.bytes === 0 || this.#fixed > 0 || this.#beforeUse) return;
    this.#hostCopy = copyToHost(this.memory, this.#address, this.bytes);
    this.#beforeUse = beforeUse;
    this.memory.free(this.#address);
  }

  /** Moves the bytes back from the host. Throws `OutOfMemoryError` if there is no memory for them; the host holds them then. */
  moveBack(): void {
    const copy = this.#hostCopy;
    if (!copy) return;
    const address = this.memory.allocate(this.bytes);
    try {
      copy.restore(address);
    } catch (error) {
      this.memory.free(address);
      throw error;
    }
    this.#address = address;
    this.#hostCopy = undefined;
    copy.free();
  }

  /** As `retain`, for an owner that keeps the address. Ends with `releaseFixed`. */
  retainFixed(): this {
    this.retain();
    this.#fixed++;
    return this;
  }

  releaseFixed(): void {
    this.#fixed--;
    this.release();
  }

  retain(): this {
    if (this.#owners === 0) throw new DisposedError("a tensor's memory");
    this.#owners++;
    return this;
  }

  release(): void {
    if (--this.#owners > 0) return;
    leaks.unregister(this);
    this.#beforeUse = undefined;
    const copy = this.#hostCopy;
    this.#hostCopy = undefined;
    if (copy) copy.free();
    else this.memory.free(this.#address);
  }
}
