/** Copies to and from a device, and memory that the addon caches. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { AddonExports } from "../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { NATIVE_CALLS } from "../../../src/backends/cuda/native-calls.js";
import { WRITERS } from "../../../src/backends/cuda/packing.gen.js";
import { Slots } from "../../../src/backends/cuda/slots.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { storageOf, Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const MIB = 2 ** 20;
const isSame = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

/** Whether all bytes equal `value`. */
function isFilled(bytes: Uint8Array, value: number): boolean {
  const piece = new Uint8Array(MIB).fill(value);
  for (let offset = 0; offset < bytes.length; offset += MIB) {
    const chunk = bytes.subarray(offset, offset + MIB);
    if (!isSame(chunk, piece.subarray(0, chunk.length))) return false;
  }
  return true;
}

describeOnStandIn("memory of a device", (addon: AddonExports) => {
  it("a read returns the contents at the time of the call, whatever is written later, in one piece or many", async () => {
    const sizes = fc.oneof(
      fc.nat({ max: 5000 }),
      fc.constantFrom(
        ...[8, 16, 24, 32].flatMap((mib) => [-1, 0, 1].map((difference) => mib * MIB + difference)),
      ),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(sizes, { minLength: 1, maxLength: 5 }),
        fc.nat(),
        async (blockSizes, seed) => {
          const device = new addon.Device(0);
          const reads = blockSizes.map((bytes, i) => {
            const address = addon.allocate(device, bytes);
            const data = new Uint8Array(words(seed + i, Math.ceil(bytes / 4)).buffer, 0, bytes);
            addon.write(device, address, data);
            const pendingRead = addon.read(device, address, bytes);
            addon.write(device, address, new Uint8Array(bytes));
            if (i % 2 === 0) addon.free(device, address);
            return { data, read: pendingRead };
          });
          for (const { data, read: pendingRead } of reads) expect(isSame(await pendingRead, data)).toBe(true);
          addon.close(device);
        },
      ),
      { numRuns: 10, seed: 1, endOnFailure: true },
    );
  }, 120_000);

  it("is read through a bounded amount of pinned memory, however much is read at once, even if the device has no memory left for a copy", async () => {
    const device = new addon.Device(0);
    const bytes = 400 * MIB;
    const address = addon.allocate(device, bytes);
    addon.fill(device, fillArguments(address, bytes, 0x11));
    // the reads need more than half of the device memory, so the tensor and its snapshot cannot both exist
    const manyReads = Array.from({ length: 40 }, () => addon.read(device, address, 7 * MIB));
    const largeReads = [addon.read(device, address, bytes), addon.read(device, address, bytes)];
    for (const pendingRead of [...manyReads, ...largeReads])
      expect(isFilled(await pendingRead, 0x11)).toBe(true);
    expect(isFilled(addon.readSync(device, address, bytes), 0x11)).toBe(true);
    addon.close(device);
  }, 120_000);

  it("accepts shared and resizable memory, and refuses transferred buffers", () => {
    const gpu = openCuda(addon);
    const check = (memory: ArrayBuffer | SharedArrayBuffer): void => {
      const view = new Uint8Array(memory, 4, 8);
      view.set([1, 2, 3, 4, 5, 6, 7, 8]);
      using x = new Tensor(gpu, "u8", [8]).write(view);
      expect(Array.from(x.dataSync())).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    };
    check(new ArrayBuffer(12));
    check(new SharedArrayBuffer(12));
    const resizable = Reflect.construct(ArrayBuffer, [64, { maxByteLength: 128 }]) as ArrayBuffer;
    check(resizable);
    check(Reflect.construct(SharedArrayBuffer, [12, { maxByteLength: 64 }]) as SharedArrayBuffer);
    const tracking = new Uint8Array(resizable, 32);
    Reflect.apply(Reflect.get(resizable, "resize"), resizable, [16]);
    using x = new Tensor(gpu, "u8", [32]);
    expect(() => x.write(tracking)).toThrow();
    const source = new Uint8Array(8);
    structuredClone(source, { transfer: [source.buffer] });
    expect(() => x.write(source)).toThrow();
    const device = new addon.Device(0);
    const address = addon.allocate(device, 8);
    expect(() => addon.write(device, address, source)).toThrow(/transferred/);
    addon.write(device, address, new Uint8Array(0));
    addon.close(device);
    void gpu.dispose();
  });

  it("moved to the host comes back with its bytes, and pinned memory is reused for blocks of similar sizes", () => {
    const gpu = openCuda(addon);
    const sizes = fc.array(fc.integer({ min: 1, max: 9 * MIB }), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(fc.array(sizes, { minLength: 1, maxLength: 3 }), fc.nat(), (rounds, seed) => {
        for (const round of rounds) {
          const tensors = round.map((bytes, i) => {
            const data = new Uint8Array(words(seed + i, Math.ceil(bytes / 4)).buffer, 0, bytes);
            const x = new Tensor(gpu, "u8", [bytes]).write(data);
            storageOf(x).moveToHost(() => undefined);
            return { data, x };
          });
          expect(gpu.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
          for (const [i, { data, x }] of tensors.entries()) {
            // some are disposed of on the host
            if ((seed + i) % 3 > 0) expect(isSame(x.dataSync() as Uint8Array, data)).toBe(true);
            x.dispose();
          }
        }
        if (seed % 2 === 0) gpu.trim();
        expect(gpu.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
      }),
      { numRuns: 15, seed: 1 },
    );
    void gpu.dispose();
  });

  it("that one backend keeps for reuse can be allocated by another, and trim() frees it", () => {
    const [a, b] = [openCuda(addon), openCuda(addon)];
    const limit = 700 * MIB;
    const allocateAndFree = (backend: typeof a): void => new Tensor(backend, "u8", [limit]).dispose();
    allocateAndFree(a);
    expect(a.memoryUse()).toMatchObject({ live: 0, reserved: limit });
    allocateAndFree(b);
    expect([a, b].map((backend) => backend.memoryUse().reserved)).toEqual([0, limit]);
    for (let i = 0; i < 50; i++) new Tensor(a, "u8", [i * 1000]).dispose();
    expect(a.memoryUse().reserved).toBeGreaterThan(0);
    using survivor = new Tensor(b, "u8", [3]).write(Uint8Array.of(1, 2, 3));
    for (const backend of [a, b]) backend.trim();
    expect([a, b].map((backend) => backend.memoryUse().reserved)).toEqual([0, 256]);
    expect(Array.from(survivor.dataSync())).toEqual([1, 2, 3]);
    using live = new Tensor(a, "u8", [limit]);
    expect(() => allocateAndFree(b)).toThrow(OutOfMemoryError);
    expect(live.shape).toEqual([limit]);
    for (const tensor of [live, survivor]) tensor.dispose();
    for (const backend of [a, b]) void backend.dispose();
  });

  it("a read for which the host has no memory throws an error and does not end the process", async () => {
    const device = new addon.Device(0);
    const address = addon.allocate(device, 64);
    const { ArrayBuffer: OriginalArrayBuffer } = globalThis;
    const missingMemory = Object.assign(
      function lacking(): never {
        throw new RangeError("Array buffer allocation failed");
      },
      { prototype: OriginalArrayBuffer.prototype },
    );
    try {
      Reflect.set(globalThis, "ArrayBuffer", missingMemory);
      for (const readBlock of [addon.readSync, addon.read])
        expect(() => readBlock(device, address, 64)).toThrow(/the host has no memory.*allocation failed/);
    } finally {
      Reflect.set(globalThis, "ArrayBuffer", OriginalArrayBuffer);
    }
    expect(addon.readSync(device, address, 64)).toHaveLength(64);
    addon.close(device);
  });
});

/** The arguments of `fill`, packed into slots. */
function fillArguments(to: number, bytes: number, value: number): Float64Array {
  const slots = new Slots(NATIVE_CALLS.fill);
  WRITERS.fill(slots, { to, bytes, value });
  return slots.numbers;
}
