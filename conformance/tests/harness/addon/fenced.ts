/**
 * The addon with every allocation between fences: tensors, and what an operation takes for itself while it runs. Fresh
 * memory is poison; what was written outside shows when it is given back.
 */
import type { AddonExports, DeviceHandle } from "../../../../src/backends/cuda/addon.js";
import { MismatchError } from "../../../values/difference.js";

/** No zero and no NaN of any type. */
const POISON = 0xa7;
const FENCE = 0xa5;
/** What allocations are aligned to. */
const FENCE_BYTES = 256;
/** What the host poisons of an allocation. */
const PIECE_BYTES = 2 ** 24;

function isFence(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === FENCE);
}

/** Whether both fences stand; a device that no longer answers has none to look at. */
function stand(addon: AddonExports, device: DeviceHandle, address: number, bytes: number): boolean {
  const read = (from: number): Uint8Array | undefined => {
    try {
      return addon.readSync(device, from, FENCE_BYTES);
    } catch {
      return undefined;
    }
  };
  const [before, after] = [read(address - FENCE_BYTES), read(address + bytes)];
  return (!before || isFence(before)) && (!after || isFence(after));
}

/** Poisons memory: a piece of it from the host, which the device copies on. */
function poison(addon: AddonExports, device: DeviceHandle, address: number, bytes: number): void {
  let done = Math.min(bytes, PIECE_BYTES);
  addon.write(device, address, new Uint8Array(done).fill(POISON));
  while (done < bytes) {
    const next = Math.min(done, bytes - done);
    addon.copy(device, address + done, address, next);
    done += next;
  }
}

/** What `body` gives; an error says how much was wanted without the fences. */
function withoutFences<T>(body: () => T): T {
  try {
    return body();
  } catch (error) {
    if (error instanceof Error && "wanted" in error && typeof error.wanted === "number")
      error.wanted -= 2 * FENCE_BYTES;
    throw error;
  }
}

/** `addon`, of which every device fences what it allocates. */
export function fencedAddon(addon: AddonExports): AddonExports {
  const sizes = new WeakMap<DeviceHandle, Map<number, number>>();
  const sizesOn = (device: DeviceHandle): Map<number, number> => {
    const known = sizes.get(device) ?? new Map<number, number>();
    sizes.set(device, known);
    return known;
  };
  // allocated in a capture, where what is written is not there until a replay
  let unwritten: [device: DeviceHandle, address: number, bytes: number][] | undefined;
  const fence = (device: DeviceHandle, address: number, bytes: number): void => {
    for (const at of [address - FENCE_BYTES, address + bytes])
      addon.write(device, at, new Uint8Array(FENCE_BYTES).fill(FENCE));
  };
  const captured = <T>(end: () => T): T => {
    try {
      return end();
    } finally {
      for (const each of unwritten ?? []) fence(...each);
      unwritten = undefined;
    }
  };
  return {
    ...addon,
    captureBegin(device) {
      addon.captureBegin(device);
      unwritten = [];
    },
    captureEnd: (device) => captured(() => addon.captureEnd(device)),
    captureAbort: (device) => captured(() => addon.captureAbort(device)),
    allocate(device, bytes) {
      const whole = withoutFences(() => addon.allocate(device, bytes + 2 * FENCE_BYTES));
      const address = whole + FENCE_BYTES;
      fence(device, address, bytes);
      unwritten?.push([device, address, bytes]);
      poison(addon, device, address, bytes);
      sizesOn(device).set(address, bytes);
      return address;
    },
    free(device, address) {
      const bytes = sizesOn(device).get(address);
      if (bytes === undefined) return addon.free(device, address);
      sizesOn(device).delete(address);
      const intact = stand(addon, device, address, bytes);
      addon.free(device, address - FENCE_BYTES);
      if (!intact) throw new MismatchError(`something wrote outside ${bytes} bytes of a GPU's memory`);
    },
    memory(device) {
      const use = addon.memory(device);
      return { ...use, live: use.live - 2 * FENCE_BYTES * sizesOn(device).size };
    },
  };
}
