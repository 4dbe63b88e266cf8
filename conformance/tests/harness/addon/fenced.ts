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
function areFencesIntact(addon: AddonExports, device: DeviceHandle, address: number, bytes: number): boolean {
  const readFence = (start: number): Uint8Array | undefined => {
    try {
      return addon.readSync(device, start, FENCE_BYTES);
    } catch {
      return undefined;
    }
  };
  const [head, tail] = [readFence(address - FENCE_BYTES), readFence(address + bytes)];
  return (!head || isFence(head)) && (!tail || isFence(tail));
}

/** Fills memory with poison: the host writes one piece, and the device copies it. */
function poison(addon: AddonExports, device: DeviceHandle, address: number, bytes: number): void {
  let filledBytes = Math.min(bytes, PIECE_BYTES);
  addon.write(device, address, new Uint8Array(filledBytes).fill(POISON));
  while (filledBytes < bytes) {
    const chunkBytes = Math.min(filledBytes, bytes - filledBytes);
    addon.copy(device, address + filledBytes, address, chunkBytes);
    filledBytes += chunkBytes;
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
  const blockSizes = (device: DeviceHandle): Map<number, number> => {
    const blocks = sizes.get(device) ?? new Map<number, number>();
    sizes.set(device, blocks);
    return blocks;
  };
  // allocations during a capture: only the replay writes their fences
  let pendingFences: [device: DeviceHandle, address: number, bytes: number][] | undefined;
  const fence = (device: DeviceHandle, address: number, bytes: number): void => {
    for (const start of [address - FENCE_BYTES, address + bytes])
      addon.write(device, start, new Uint8Array(FENCE_BYTES).fill(FENCE));
  };
  const afterCapture = <T>(end: () => T): T => {
    try {
      return end();
    } finally {
      for (const allocation of pendingFences ?? []) fence(...allocation);
      pendingFences = undefined;
    }
  };
  return {
    ...addon,
    captureBegin(device) {
      addon.captureBegin(device);
      pendingFences = [];
    },
    captureEnd: (device) => afterCapture(() => addon.captureEnd(device)),
    captureAbort: (device) => afterCapture(() => addon.captureAbort(device)),
    allocate(device, bytes) {
      const block = withoutFences(() => addon.allocate(device, bytes + 2 * FENCE_BYTES));
      const address = block + FENCE_BYTES;
      fence(device, address, bytes);
      pendingFences?.push([device, address, bytes]);
      poison(addon, device, address, bytes);
      blockSizes(device).set(address, bytes);
      return address;
    },
    free(device, address) {
      const bytes = blockSizes(device).get(address);
      if (bytes === undefined) return addon.free(device, address);
      blockSizes(device).delete(address);
      const intact = areFencesIntact(addon, device, address, bytes);
      addon.free(device, address - FENCE_BYTES);
      if (!intact) throw new MismatchError(`something wrote outside ${bytes} bytes of a GPU's memory`);
    },
    memory(device) {
      const memoryUse = addon.memory(device);
      return { ...memoryUse, live: memoryUse.live - 2 * FENCE_BYTES * blockSizes(device).size };
    },
  };
}
