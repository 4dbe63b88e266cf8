/** Memory that a CUDA graph was captured with. */
import type { Storage } from "../../tensor/storage.js";
import { HeldMemory } from "../captured.js";

/**
 * Blocks of one graph. Those allocated while it was captured stay with it; freed ones are used again within it only, for every
 * replay writes to them. Of those from before, the ones that it uses are held.
 */
export class GraphMemory {
  /** Bytes of each block that was allocated during the capture. */
  readonly #sizes = new Map<number, number>();
  /** Of these, the ones that no tensor has, by their bytes. */
  readonly #spare = new Map<number, number[]>();
  readonly #outside = new HeldMemory();

  /** A block that was freed during the capture. */
  take(bytes: number): number | undefined {
    return this.#spare.get(bytes)?.pop();
  }

  /** A block that was allocated during the capture. */
  add(address: number, bytes: number): void {
    this.#sizes.set(address, bytes);
  }

  /** Whether the block is one of these: then it is not given back before the graph is. */
  keep(address: number): boolean {
    const bytes = this.#sizes.get(address);
    if (bytes === undefined) return false;
    const spare = this.#spare.get(bytes);
    if (spare) spare.push(address);
    else this.#spare.set(bytes, [address]);
    return true;
  }

  used(block: Storage, address: number): void {
    if (!this.#sizes.has(address)) this.#outside.hold(block);
  }

  /** Nothing replays any more: gives up all blocks, and says which of them no tensor has. */
  release(): readonly number[] {
    const spare = [...this.#spare.values()].flat();
    this.#sizes.clear();
    this.#spare.clear();
    this.#outside.release();
    return spare;
  }
}
