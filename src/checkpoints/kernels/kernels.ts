/** The exports of the reference for stored weights, in a separate WebAssembly memory. */
import type { Exactly, ExportArgs, Immediate } from "../../backends/wasm/call.js";
import { Heap } from "../../backends/wasm/heap.js";
import { type ExportName, type Instance, openInstance } from "../../backends/wasm/instance.js";
import { Pool } from "../../backends/wasm/pool.js";
import { asBytes } from "../../tensor/data.js";

/** A buffer in the kernels' memory. It is valid until a buffer of the same name is requested again. */
export interface KernelBuffer {
  readonly address: number;
  readonly bytes: Uint8Array;
}

interface Block {
  readonly address: number;
  readonly size: number;
}

/** Bytes after each block, so that kernels may read full vectors. */
const SLACK = 64;

/** Kernels that run on the calling thread. Only one caller may use them at a time. */
export class Kernels {
  readonly #blocks = new Map<string, Block>();

  private constructor(
    private readonly instance: Instance,
    private readonly heap: Heap,
    private readonly pool: Pool,
  ) {}

  /** Throws `BackendError` if the host does not allow WebAssembly. */
  static async open(): Promise<Kernels> {
    const instance = await openInstance();
    const heap = new Heap(instance);
    return new Kernels(instance, heap, await Pool.open(instance, heap, 1));
  }

  /**
   * Returns the buffer of this name, with `length` bytes. If the buffer was at least as long at its last use, its contents are
   * unchanged; otherwise they are arbitrary.
   */
  buffer(name: string, length: number): KernelBuffer {
    let block = this.#blocks.get(name);
    if (!block || block.size < length) {
      if (block) this.heap.release(block.address);
      this.#blocks.delete(name);
      block = { address: this.heap.reserve(length + SLACK), size: length };
      this.#blocks.set(name, block);
    }
    return {
      address: block.address,
      bytes: new Uint8Array(this.instance.memory.buffer, block.address, length),
    };
  }

  /** Copies data to the buffer of this name, and returns its address. Data in kernel memory is not copied. */
  put(name: string, data: ArrayBufferView): number {
    if (data.buffer === this.instance.memory.buffer) return data.byteOffset;
    const { address, bytes } = this.buffer(name, data.byteLength);
    bytes.set(asBytes(data));
    return address;
  }

  /** The `count` f64 at an address. */
  doubles(address: number, count: number): Float64Array {
    return new Float64Array(this.instance.memory.buffer, address, count);
  }

  /** The `count` u32 at an address. */
  words(address: number, count: number): Uint32Array {
    return new Uint32Array(this.instance.memory.buffer, address, count);
  }

  /** The `count` bytes at an address. */
  bytes(address: number, count: number): Uint8Array {
    return new Uint8Array(this.instance.memory.buffer, address, count);
  }

  /** Calls an export over a range. */
  run<K extends ExportName, A extends ExportArgs<K>>(
    name: K,
    total: number,
    args: A & Exactly<A, ExportArgs<K>>,
  ): void {
    this.pool.run<K, A>(name, { total }, args);
  }

  /** Calls a WebAssembly export that does not work on a range. */
  call<K extends Immediate, A extends ExportArgs<K>>(name: K, args: A & Exactly<A, ExportArgs<K>>): number {
    return this.pool.call<K, A>(name, args);
  }
}
