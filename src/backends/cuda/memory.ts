/** Device memory of tensors. */
import type { HostCopy, Memory, Storage } from "../../tensor/storage.js";
import type { CapturedWork, MemoryUse } from "../backend.js";
import { waits } from "../captured.js";
import type { Addon, DeviceHandle } from "./addon.js";
import { GraphMemory } from "./capture.js";
import { libraryError } from "./failure.js";

/** Allocation and copies of device memory, ordered by the backend's stream. */
export class DeviceMemory implements Memory {
  readonly #addon: Addon;
  readonly #device: DeviceHandle;
  closed = false;
  /** Functions that are called after every read. They throw if the data that was read may be wrong. */
  readonly checks = new Set<() => void>();
  used: ((block: Storage, address: number) => void) | undefined;
  /** The memory of the graph that is being captured. Undefined outside a capture. */
  #captured: GraphMemory | undefined;
  /** The memory of the graph that is being captured and of all graphs that can be replayed. */
  readonly #graphs = new Set<GraphMemory>();
  /** The addresses of blocks that were allocated before the current capture and freed during it. */
  readonly #freed: number[] = [];

  constructor(addon: Addon, device: DeviceHandle) {
    this.#addon = addon;
    this.#device = device;
  }

  readonly live = (): number => this.use().live;

  /** Allocates memory. Throws `OutOfMemoryError` if it is not available; all tensors are still usable then. */
  allocate(bytes: number): number {
    const freed = this.#captured?.take(bytes);
    if (freed !== undefined) return freed;
    try {
      const address = this.#addon.allocate(this.#device, bytes);
      this.#captured?.add(address, bytes);
      return address;
    } catch (error) {
      throw libraryError(error, this.live);
    }
  }

  free(address: number): void {
    for (const graph of this.#graphs) if (graph.keep(address)) return;
    if (this.#captured) this.#freed.push(address);
    else this.#free(address);
  }

  #free(address: number): void {
    this.#translating(() => this.#addon.free(this.#device, address));
  }

  /** Calls the addon. Its errors become errors of this library. */
  #translating<R>(call: () => R): R {
    try {
      return call();
    } catch (error) {
      throw libraryError(error, this.live);
    }
  }

  trim(): void {
    this.#translating(() => this.#addon.trim(this.#device));
  }

  write(address: number, bytes: Uint8Array): void {
    this.#translating(() => this.#addon.write(this.#device, address, bytes));
  }

  copy(to: number, from: number, bytes: number): void {
    this.#translating(() => this.#addon.copy(this.#device, to, from, bytes));
  }

  copyToHost(address: number, bytes: number): HostCopy {
    if (this.capturing) throw waits("a tensor is moved to the host");
    const copy = this.#translating(() => this.#addon.hostCopy(this.#device, address, bytes));
    return {
      restore: (to) => {
        if (this.capturing) throw waits("a tensor is moved back from the host");
        this.#translating(() => this.#addon.hostRestore(this.#device, copy, to));
      },
      free: () => this.#translating(() => this.#addon.hostFree(this.#device, copy)),
    };
  }

  get capturing(): boolean {
    return this.#captured !== undefined;
  }

  /** Captures the work that `body` enqueues. If `body` throws, nothing is kept. */
  capture(body: () => void): CapturedWork {
    if (this.capturing) throw waits("another capture begins");
    const [addon, device] = [this.#addon, this.#device];
    const memory = new GraphMemory();
    addon.captureBegin(device);
    this.#captured = memory;
    this.#graphs.add(memory);
    this.used = (block, address) => memory.used(block, address);
    let graph: number | undefined;
    try {
      body();
      graph = addon.captureEnd(device);
    } finally {
      this.used = undefined;
      this.#captured = undefined;
      if (graph === undefined) {
        if (!this.closed) addon.captureAbort(device);
        this.#release(memory);
      }
      for (const address of this.#freed.splice(0)) this.#free(address);
    }
    return {
      replay: () => addon.graphLaunch(device, graph),
      dispose: () => {
        if (!this.#graphs.has(memory)) return;
        if (!this.closed) addon.graphDestroy(device, graph);
        this.#release(memory);
      },
    };
  }

  #release(memory: GraphMemory): void {
    this.#graphs.delete(memory);
    for (const address of memory.release()) this.#free(address);
  }

  async read(address: number, bytes: number): Promise<Uint8Array> {
    try {
      const read = await this.#addon.read(this.#device, address, bytes);
      for (const check of this.checks) check();
      return read;
    } catch (error) {
      throw libraryError(error, this.live);
    }
  }

  readSync(address: number, bytes: number): Uint8Array {
    try {
      const read = this.#addon.readSync(this.#device, address, bytes);
      for (const check of this.checks) check();
      return read;
    } catch (error) {
      throw libraryError(error, this.live);
    }
  }

  use(): MemoryUse {
    return this.#addon.memory(this.#device);
  }
}
