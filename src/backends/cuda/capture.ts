/** The memory of a captured CUDA graph. */
import type { Storage } from "../../tensor/storage.js";
import { HeldMemory } from "../captured.js";

/**
 * The blocks of one graph. Blocks allocated during the capture belong to it; once freed they are reused only within it, because
 * every replay writes to them. Earlier blocks that it uses are kept alive.
 */
export class GraphMemory {
  /** The bytes of each block that was allocated during the capture. */
  readonly #sizes = new Map<number, number>();
  /** Those of them that no tensor owns, by size. */
  readonly #spare = new Map<number, number[]>();
  readonly #outside = new HeldMemory();

  /** Takes a block that was freed during the capture. */
  take(bytes: number): number | undefined {
    return this.#spare.get(bytes)?.pop();
  }

  /** Adds a block that was allocated during the capture. */
  add(address: number, bytes: number): void {
    this.#sizes.set(address, bytes);
  }

  /** Keeps the block if the graph owns it, and says whether it does; such a block is freed only with the graph. */
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

  /** Releases all blocks after the last replay, and returns those that no tensor owns. */
  release(): readonly number[] {
    const spare = [...this.#spare.values()].flat();
    this.#sizes.clear();
    this.#spare.clear();
    this.#outside.release();
    return spare;
  }
}
