/** The memory that a captured CUDA graph uses. */
import type { Storage } from "../../tensor/storage.js";
import { HeldMemory } from "../captured.js";

/**
 * The blocks of memory of one graph. A block that is allocated during the capture belongs to the graph, because every replay
 * writes to it: after it is freed, only the same capture reuses it. Blocks that existed before and that the graph uses are kept
 * allocated.
 */
export class GraphMemory {
  /** The size in bytes of each block that was allocated during the capture, by address. */
  readonly #sizes = new Map<number, number>();
  /** The addresses of those blocks that no tensor owns any more, by size. */
  readonly #spare = new Map<number, number[]>();
  readonly #outside = new HeldMemory();

  /** Returns a block of this size that was freed during the capture, or undefined if there is none. */
  take(bytes: number): number | undefined {
    return this.#spare.get(bytes)?.pop();
  }

  /** Adds a block that was allocated during the capture. */
  add(address: number, bytes: number): void {
    this.#sizes.set(address, bytes);
  }

  /**
   * Takes back a freed block if the graph owns it, and returns whether it does. Such a block is freed only together with the
   * graph.
   */
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

  /** Releases all blocks after the last replay. Returns those that no tensor owns; the caller frees them. */
  release(): readonly number[] {
    const spare = [...this.#spare.values()].flat();
    this.#sizes.clear();
    this.#spare.clear();
    this.#outside.release();
    return spare;
  }
}
