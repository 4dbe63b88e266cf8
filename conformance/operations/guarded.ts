/** A backend whose fresh memory is poisoned and fenced, so that what is not written, or written outside, shows. */
import { type Backend, type MemoryUse, requireBackend, type Support } from "../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../src/backends/ops.js";
import { integer, needed, optionsOf } from "../../src/options.js";
import type { Memory } from "../../src/tensor/storage.js";
import { MismatchError } from "../values/difference.js";
import { PassingBackend } from "./passing.js";

/** No zero and no NaN of any type: what is never written stays recognisable. */
const POISON = 0xa7;
const FENCE = 0xa5;
const FENCE_BYTES = 64;

/**
 * Runs everything on `inner`. Its tensors live in memory that starts as poison.
 *
 * @throws `ArgumentError` for what is no backend.
 * @throws `DisposedError` for a backend that was disposed of.
 */
export class GuardedBackend extends PassingBackend {
  constructor(inner: Backend) {
    super(inner, ({ name, memory }) => (name === "wasm" ? fenced(memory) : poisoned(memory)));
  }

  /** What `inner` says. */
  override supports<K extends OpName>(op: K, args: OpArgs[K]): Support {
    const support = this.inner.supports(op, args);
    // the reference is the definition, also of what hardware follows approximately
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

/** Linear memory: an address can be moved, so that a fence fits on either side. */
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
 * Holds a backend to giving back what it took.
 *
 * @throws `MismatchError` unless `backend` has as many live bytes and blocks as before.
 * @throws `ArgumentError` for what is no backend, `DisposedError` for a backend that was disposed of.
 */
export function expectNoLeak(backend: Backend, before: MemoryUse): void {
  requireBackend("expectNoLeak", backend);
  checkMemoryUse("expectNoLeak", before, "before");
  const { live, blocks } = backend.memoryUse();
  if (live === before.live && blocks === before.blocks) return;
  throw new MismatchError(
    `${live - before.live} bytes in ${blocks - before.blocks} blocks were not given back; dispose of them or use a scope`,
  );
}
