/** Memory of a backend, counted by its owners. */
import { DisposedError } from "../errors.js";

/** Where bytes live. `address` means something to the backend alone. */
export interface Memory {
  /** All of it was freed, with the backend. */
  readonly closed?: boolean;
  /** The address of `bytes` fresh bytes, a multiple of 256. Throws `OutOfMemoryError` where they cannot be had. */
  allocate(bytes: number): number;
  /** Gives back what `allocate` gave, in the order of the work enqueued. */
  free(address: number): void;
  /** Copies in, in the order of the work enqueued; `bytes` may change once it returns. */
  write(address: number, bytes: Uint8Array): void;
  /** Copies `bytes` bytes within this memory, in the order of the work enqueued. The two places do not overlap. */
  copy(to: number, from: number, bytes: number): void;
  /** Copies out. On a GPU this waits for the work enqueued before it. */
  read(address: number, bytes: number): Promise<Uint8Array>;
  /** As `read`, blocking. */
  readSync(address: number, bytes: number): Uint8Array;
  /** @internal While work is captured: told of each block whose address is asked for. */
  readonly used?: ((block: Storage, address: number) => void) | undefined;
}

/** Whether two ranges of bytes have one in common; an empty one has none. */
export function isOverlap(begin: number, end: number, other: number, otherEnd: number): boolean {
  return begin < otherEnd && other < end && begin < end && other < otherEnd;
}

interface Lost {
  readonly memory: Memory;
  readonly bytes: number;
}

/** What one garbage collection has found, to be told in one line. */
let lost: Lost[] = [];

const leaks = new FinalizationRegistry<Lost>((found) => {
  if (lost.length === 0) queueMicrotask(warn);
  lost.push(found);
});

function warn(): void {
  const taken = lost.filter(({ memory }) => !memory.closed);
  lost = [];
  if (taken.length === 0) return;
  const bytes = taken.reduce((sum, each) => sum + each.bytes, 0);
  console.warn(
    `lockstep: tensors of ${bytes} bytes in all were garbage collected without dispose(); their memory stays taken. Use a scope.`,
  );
}

/** A reference-counted block of memory. Views share it; the last to release it frees it. */
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

  /** The backend's address of the block. Throws `DisposedError` once it is freed. */
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
