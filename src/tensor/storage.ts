/** Memory of a backend, counted by its owners. */
import { DisposedError } from "../errors.js";

/** Where bytes live. `address` means something to the backend alone. */
export interface Memory {
  allocate(bytes: number): number;
  free(address: number): void;
  write(address: number, bytes: Uint8Array): void;
  /** Copies `bytes` bytes within this memory, in the order of the work enqueued. The two places do not overlap. */
  copy(to: number, from: number, bytes: number): void;
  /** Copies out. On a GPU this waits for the work enqueued before it. */
  read(address: number, bytes: number): Promise<Uint8Array>;
  readSync(address: number, bytes: number): Uint8Array;
}

const leaks = new FinalizationRegistry<number>((bytes) => {
  console.warn(
    `lockstep: a storage of ${bytes} bytes was garbage collected without dispose(); its memory stays taken. Use a scope.`,
  );
});

/** A reference-counted block of memory. Views share it; the last to release it frees it. */
export class Storage {
  readonly #address: number;
  #owners = 1;

  constructor(
    readonly memory: Memory,
    readonly bytes: number,
  ) {
    this.#address = memory.allocate(bytes);
    leaks.register(this, bytes, this);
  }

  get disposed(): boolean {
    return this.#owners === 0;
  }

  /** The backend's address of the block. Throws `DisposedError` once it is freed. */
  get address(): number {
    if (this.#owners === 0) throw new DisposedError("a tensor's memory");
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
