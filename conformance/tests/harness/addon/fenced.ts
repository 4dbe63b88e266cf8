/**
 * The addon with fences around every allocation, for tensors and for temporaries of operations. New memory is filled with poison.
 * A write outside an allocation is detected when it is freed.
 */
import type { AddonExports, DeviceHandle } from "../../../../src/backends/cuda/addon.js";
import { MismatchError } from "../../../values/difference.js";

/** The fill byte. As an element of any type it is neither zero nor NaN. */
const POISON = 0xa7;
const FENCE = 0xa5;
/** The alignment of allocations, which the fences preserve. */
const FENCE_BYTES = 256;
/** The size of the poison pattern that the host writes; the device copies it to fill larger allocations. */
const PIECE_BYTES = 2 ** 24;

function isFence(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === FENCE);
}

/** Whether both fences are intact. True for a device that has failed, because its memory cannot be read. */
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

/** Fills memory with poison: the host writes one piece, and the device copies it. */
function poison(addon: AddonExports, device: DeviceHandle, address: number, bytes: number): void {
  let done = Math.min(bytes, PIECE_BYTES);
  addon.write(device, address, new Uint8Array(done).fill(POISON));
  while (done < bytes) {
    const next = Math.min(done, bytes - done);
    addon.copy(device, address + done, address, next);
    done += next;
  }
}

/** Runs `body`. If it fails, the error states the requested size without the fences. */
function withoutFences<T>(body: () => T): T {
  try {
    return body();
  } catch (error) {
    if (error instanceof Error && "wanted" in error && typeof error.wanted === "number")
      error.wanted -= 2 * FENCE_BYTES;
    throw error;
  }
}

/** An addon whose devices fence their allocations. */
export function fencedAddon(addon: AddonExports): AddonExports {
  const sizes = new WeakMap<DeviceHandle, Map<number, number>>();
  const sizesOn = (device: DeviceHandle): Map<number, number> => {
    const blocks = sizes.get(device) ?? new Map<number, number>();
    sizes.set(device, blocks);
    return blocks;
  };
  // allocations during a capture: only the replay writes their fences
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
      const block = withoutFences(() => addon.allocate(device, bytes + 2 * FENCE_BYTES));
      const address = block + FENCE_BYTES;
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
