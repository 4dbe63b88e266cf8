/**
 * The memory of each backend. The library uses the memory of its own backends unchecked. Programs, such as backends that wrap
 * others, get it as `backend.memory`, which is checked: it accesses only blocks that it has allocated.
 */
import { ArgumentError, DTypeError } from "../errors.js";
import { describe, integer } from "../options.js";
import { asBytes, kindOf } from "./data.js";
import type { Memory, Storage } from "./storage.js";

/** The memory of one of the library's backends, unchecked and checked. */
interface OwnMemory {
  readonly memory: Memory;
  readonly checked: CheckedMemory;
}

const ownMemory = new WeakMap<object, OwnMemory>();

/** The part of a backend that gives access to its memory. */
interface HasMemory {
  readonly memory: Memory;
}

/** Registers the memory of one of the library's own backends. */
export function registerMemory(backend: object, memory: Memory): void {
  ownMemory.set(backend, { memory, checked: new CheckedMemory(memory) });
}

/**
 * Returns the memory of a backend, unchecked if the backend is the library's own. Throws `ArgumentError` for anything that is
 * not a backend, such as a proxy of one.
 */
export function memoryOf(backend: HasMemory): Memory {
  return ownMemory.get(backend)?.memory ?? memoryOfOther(backend);
}

function memoryOfOther(backend: Partial<HasMemory> | null | undefined): Memory {
  let memory: Memory | undefined;
  let cause: unknown;
  try {
    memory = backend?.memory;
    if (typeof memory?.allocate === "function") return memory;
  } catch (error) {
    cause = error;
  }
  throw new ArgumentError(
    `a tensor needs a backend; ${describe(backend)} was given; give what await openBackend("wasm") gives, not a proxy of it`,
    { cause },
  );
}

/** Returns the library's own backend that this one is or inherits from, or undefined if there is none. */
export function registered(backend: object): object | undefined {
  for (let object: object | null = backend; object; object = Object.getPrototypeOf(object) as object | null) {
    if (ownMemory.has(object)) return object;
  }
  return undefined;
}

/**
 * Returns the checked memory of one of the library's own backends, which is its property `memory`. Throws `ArgumentError` for a
 * proxy of a backend: a getter that is called through a proxy has the proxy as `this`.
 */
export function checkedMemory(backend: object): CheckedMemory {
  const entry = ownMemory.get(registered(backend) ?? backend);
  if (entry) return entry.checked;
  throw new ArgumentError(
    "backend is a proxy or an imitation of a backend: give the backend itself (toRaw() in Vue, and markRaw() where it is stored)",
  );
}

const byteCount = integer(0);

/** Memory that checks each access: it must lie in one block that was allocated here. */
export class CheckedMemory implements Memory {
  readonly #memory: Memory;
  /** The sizes of the blocks by their addresses. */
  readonly #blocks = new Map<number, number>();

  constructor(memory: Memory) {
    this.#memory = memory;
  }

  get closed(): boolean {
    return this.#memory.closed === true;
  }

  /** @internal During a capture, receives each block whose address is requested. */
  get used(): ((block: Storage, address: number) => void) | undefined {
    return this.#memory.used;
  }

  allocate(bytes: number): number {
    byteCount("allocate", "bytes", bytes);
    const address = this.#memory.allocate(bytes);
    this.#blocks.set(address, bytes);
    return address;
  }

  free(address: number): void {
    if (!this.#blocks.delete(address))
      throw new ArgumentError(
        `free: ${describe(address)} is not the address of a block that allocate() returned`,
      );
    this.#memory.free(address);
  }

  write(address: number, bytes: Uint8Array): void {
    if (kindOf(bytes) !== "Uint8Array")
      throw new DTypeError(`write: bytes is ${describe(bytes)}; it must be a Uint8Array`);
    const plain = asBytes(bytes);
    this.require("write", address, plain.length);
    this.#memory.write(address, plain);
  }

  copy(to: number, from: number, bytes: number): void {
    this.require("copy", to, bytes);
    this.require("copy", from, bytes);
    this.#memory.copy(to, from, bytes);
  }

  async read(address: number, bytes: number): Promise<Uint8Array> {
    this.require("read", address, bytes);
    return this.#memory.read(address, bytes);
  }

  readSync(address: number, bytes: number): Uint8Array {
    this.require("readSync", address, bytes);
    return this.#memory.readSync(address, bytes);
  }

  /** Throws `ArgumentError` unless the bytes lie in one block that was allocated here. */
  require(op: string, address: number, bytes: number): void {
    byteCount(op, "address", address);
    byteCount(op, "bytes", bytes);
    if (bytes <= (this.#blocks.get(address) ?? -1)) return;
    for (const [begin, size] of this.#blocks) {
      if (begin <= address && address + bytes <= begin + size) return;
    }
    throw new ArgumentError(
      `${op}: ${bytes} bytes from address ${address} on do not lie in one block of this memory; give what allocate() returned`,
    );
  }
}
