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
  /** @internal During a capture, receives each block whose address is requested. */
  readonly used?: ((block: Storage, address: number) => void) | undefined;
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
  readonly #address: number;
  #owners = 1;

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
    this.memory.used?.(this, this.#address);
    return this.#address;
  }

  retain(): this {
    if (this.#owners === 0) throw new DisposedError("a tensor's memory");
    this.#owners++;
    return this;
  }

  release(): void {
    if (--this.#owners > 0) return;
    leaks.unregister(this);
    this.memory.free(this.#address);
  }
}
