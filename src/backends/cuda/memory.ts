/** A GPU's memory as the tensors' memory. */
import type { Memory } from "../../tensor/storage.js";
import type { MemoryUse } from "../backend.js";
import type { Addon, DeviceHandle } from "./addon.js";
import { translated } from "./failure.js";

/** Allocation and copies, all of them in the order of the backend's stream. */
export class DeviceMemory implements Memory {
  readonly #addon: Addon;
  readonly #device: DeviceHandle;
  closed = false;

  constructor(addon: Addon, device: DeviceHandle) {
    this.#addon = addon;
    this.#device = device;
  }

  readonly live = (): number => this.use().live;

  /** Throws `OutOfMemoryError`, which leaves every tensor usable. */
  allocate(bytes: number): number {
    try {
      return this.#addon.allocate(this.#device, bytes);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  free(address: number): void {
    try {
      this.#addon.free(this.#device, address);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  trim(): void {
    try {
      this.#addon.trim(this.#device);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  write(address: number, bytes: Uint8Array): void {
    try {
      this.#addon.write(this.#device, address, bytes);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  copy(to: number, from: number, bytes: number): void {
    try {
      this.#addon.copy(this.#device, to, from, bytes);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  async read(address: number, bytes: number): Promise<Uint8Array> {
    try {
      return await this.#addon.read(this.#device, address, bytes);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  readSync(address: number, bytes: number): Uint8Array {
    try {
      return this.#addon.readSync(this.#device, address, bytes);
    } catch (error) {
      throw translated(error, this.live);
    }
  }

  use(): MemoryUse {
    return this.#addon.memory(this.#device);
  }
}
