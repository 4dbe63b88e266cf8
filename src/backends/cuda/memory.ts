/** A GPU's memory as the tensors' memory. */
import type { Memory } from "../../tensor/storage.js";
import type { Addon, DeviceHandle } from "../addon.js";
import type { MemoryUse } from "../backend.js";
import { translating, translatingAsync } from "./failure.js";

/** Allocation and copies, all of them in the order of the backend's stream. */
export class DeviceMemory implements Memory {
  readonly #addon: Addon;
  readonly #device: DeviceHandle;

  constructor(addon: Addon, device: DeviceHandle) {
    this.#addon = addon;
    this.#device = device;
  }

  readonly #live = (): number => this.use().live;

  /** Throws `OutOfMemoryError`, which leaves every tensor usable. */
  allocate(bytes: number): number {
    return translating(this.#live, () => this.#addon.allocate(this.#device, bytes));
  }

  free(address: number): void {
    translating(this.#live, () => this.#addon.free(this.#device, address));
  }

  write(address: number, bytes: Uint8Array): void {
    translating(this.#live, () => this.#addon.write(this.#device, address, bytes));
  }

  read(address: number, bytes: number): Promise<Uint8Array> {
    return translatingAsync(this.#live, () => this.#addon.read(this.#device, address, bytes));
  }

  readSync(address: number, bytes: number): Uint8Array {
    return translating(this.#live, () => this.#addon.readSync(this.#device, address, bytes));
  }

  use(): MemoryUse {
    return this.#addon.memory(this.#device);
  }
}
