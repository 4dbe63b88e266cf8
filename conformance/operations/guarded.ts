/**
 * A backend whose fresh memory is poisoned and fenced, so that tests detect elements that are not written and writes outside a
 * tensor.
 */
import { type Backend, type MemoryUse, requireBackend, type Support } from "../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../src/backends/ops.js";
import { integer, needed, optionsOf } from "../../src/options.js";
import type { Memory } from "../../src/tensor/storage.js";
import { MismatchError } from "../values/difference.js";
import { PassingBackend } from "./passing.js";

/** The fill byte. As an element of any type it is neither zero nor NaN, so that unwritten elements are recognisable. */
const POISON = 0xa7;
const FENCE = 0xa5;
const FENCE_BYTES = 64;

/**
 * Runs all operations on `inner`. Memory of new tensors is filled with the poison byte.
 *
 * @throws `ArgumentError` if `inner` is not a backend.
 * @throws `DisposedError` for a disposed backend.
 */
export class GuardedBackend extends PassingBackend {
  constructor(inner: Backend) {
    super(inner, ({ name, memory }) => (name === "wasm" ? fenced(memory) : poisoned(memory)));
  }

  /** Returns the answer of `inner`. An approximate answer is an error, unless `inner` is the reference. */
  override supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    const support = this.inner.supports(op, args);
    // The reference is the definition, also for operations that hardware only approximates.
    if (!support.ok || support.agrees === "bits" || this.inner.name === "wasm") return support;
    return { ok: false, reason: `no promise of the same bits: ${support.agrees.approximate}` };
  }
}

function poisoned(memory: Memory): Memory {
  return {
    ...access(memory),
    allocate(bytes) {
      const address = memory.allocate(bytes);
      memory.write(address, new Uint8Array(bytes).fill(POISON));
      return address;
    },
    free: (address) => memory.free(address),
  };
}

function access(memory: Memory): Pick<Memory, "write" | "copy" | "read" | "readSync"> {
  return {
    write: (address, bytes) => memory.write(address, bytes),
    copy: (to, from, bytes) => memory.copy(to, from, bytes),
    read: (address, bytes) => memory.read(address, bytes),
    readSync: (address, bytes) => memory.readSync(address, bytes),
  };
}

/** Linear memory with a fence before and after each allocation. It returns addresses inside the allocated blocks. */
function fenced(memory: Memory): Memory {
  const sizes = new Map<number, number>();
  return {
    ...access(memory),
    allocate(bytes) {
      const address = memory.allocate(bytes + 2 * FENCE_BYTES);
      const block = new Uint8Array(bytes + 2 * FENCE_BYTES).fill(FENCE);
      memory.write(address, block.fill(POISON, FENCE_BYTES, FENCE_BYTES + bytes));
      sizes.set(address + FENCE_BYTES, bytes);
      return address + FENCE_BYTES;
    },
    free(address) {
      const bytes = sizes.get(address) ?? 0;
      sizes.delete(address);
      const fences = [
        memory.readSync(address - FENCE_BYTES, FENCE_BYTES),
        memory.readSync(address + bytes, FENCE_BYTES),
      ];
      memory.free(address - FENCE_BYTES);
      if (fences.some((fence) => fence.some((byte) => byte !== FENCE))) {
        throw new MismatchError(`something wrote outside a tensor of ${bytes} bytes`);
      }
    },
  };
}

const checkMemoryUse = optionsOf<MemoryUse>({
  live: needed(integer(0)),
  reserved: needed(integer(0)),
  blocks: needed(integer(0)),
});

/**
 * Checks that a backend has freed everything since `before`.
 *
 * @throws `MismatchError` unless `backend` has as many live bytes and blocks as `before`. @throws `ArgumentError` if `backend` is
 * not a backend, `DisposedError` for a disposed one.
 */
export function expectNoLeak(backend: Backend, before: MemoryUse): void {
  requireBackend("expectNoLeak", backend);
  const ownBefore = checkMemoryUse("expectNoLeak", before, "before");
  const { live, blocks } = backend.memoryUse();
  if (live === ownBefore.live && blocks === ownBefore.blocks) return;
  throw new MismatchError(
    `${live - ownBefore.live} bytes in ${blocks - ownBefore.blocks} blocks were not given back; dispose of them or use a scope`,
  );
}
