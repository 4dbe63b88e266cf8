/** Copies to and from a device, and memory that the addon caches. */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import type { AddonExports } from "../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { NATIVE_CALLS } from "../../../src/backends/cuda/native-calls.js";
import { WRITERS } from "../../../src/backends/cuda/packing.gen.js";
import { Slots } from "../../../src/backends/cuda/slots.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { describeOnStandIn } from "../harness/addon/stand-in.js";

const MIB = 2 ** 20;
const isSame = (a: Uint8Array, b: Uint8Array): boolean => Buffer.compare(a, b) === 0;

/** Whether all bytes equal `value`. */
function isFilled(bytes: Uint8Array, value: number): boolean {
  const piece = new Uint8Array(MIB).fill(value);
  for (let at = 0; at < bytes.length; at += MIB) {
    const part = bytes.subarray(at, at + MIB);
    if (!isSame(part, piece.subarray(0, part.length))) return false;
  }
  return true;
}

describeOnStandIn("memory of a device", (addon: AddonExports) => {
  it("a read returns the contents at the time of the call, whatever is written later, in one piece or many", async () => {
    const sizes = fc.oneof(
      fc.nat({ max: 5000 }),
      fc.constantFrom(...[8, 16, 24, 32].flatMap((mib) => [-1, 0, 1].map((more) => mib * MIB + more))),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(sizes, { minLength: 1, maxLength: 5 }), fc.nat(), async (each, seed) => {
        const device = new addon.Device(0);
        const reads = each.map((bytes, i) => {
          const at = addon.allocate(device, bytes);
          const data = new Uint8Array(words(seed + i, Math.ceil(bytes / 4)).buffer, 0, bytes);
          addon.write(device, at, data);
          const read = addon.read(device, at, bytes);
          addon.write(device, at, new Uint8Array(bytes));
          if (i % 2 === 0) addon.free(device, at);
          return { data, read };
        });
        for (const { data, read } of reads) expect(isSame(await read, data)).toBe(true);
        addon.close(device);
      }),
      { numRuns: 10, seed: 1, endOnFailure: true },
    );
  }, 120_000);

  it("is read through a bounded amount of pinned memory, however much is read at once, even if the device has no memory left for a copy", async () => {
    const device = new addon.Device(0);
    const bytes = 400 * MIB;
    const at = addon.allocate(device, bytes);
    addon.fill(device, filled(at, bytes, 0x11));
    // the reads need more than half of the device memory, so the tensor and its snapshot cannot both exist
    const many = Array.from({ length: 40 }, () => addon.read(device, at, 7 * MIB));
    const large = [addon.read(device, at, bytes), addon.read(device, at, bytes)];
    for (const read of [...many, ...large]) expect(isFilled(await read, 0x11)).toBe(true);
    expect(isFilled(addon.readSync(device, at, bytes), 0x11)).toBe(true);
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
    const sent = new Uint8Array(8);
    structuredClone(sent, { transfer: [sent.buffer] });
    expect(() => x.write(sent)).toThrow();
    const device = new addon.Device(0);
    const at = addon.allocate(device, 8);
    expect(() => addon.write(device, at, sent)).toThrow(/transferred/);
    addon.write(device, at, new Uint8Array(0));
    addon.close(device);
    void gpu.dispose();
  });

  it("that one backend keeps for reuse can be allocated by another, and trim() frees it", () => {
    const [a, b] = [openCuda(addon), openCuda(addon)];
    const most = 700 * MIB;
    const take = (backend: typeof a): void => new Tensor(backend, "u8", [most]).dispose();
    take(a);
    expect(a.memoryUse()).toMatchObject({ live: 0, reserved: most });
    take(b);
    expect([a, b].map((each) => each.memoryUse().reserved)).toEqual([0, most]);
    for (let i = 0; i < 50; i++) new Tensor(a, "u8", [i * 1000]).dispose();
    expect(a.memoryUse().reserved).toBeGreaterThan(0);
    using kept = new Tensor(b, "u8", [3]).write(Uint8Array.of(1, 2, 3));
    for (const each of [a, b]) each.trim();
    expect([a, b].map((each) => each.memoryUse().reserved)).toEqual([0, 256]);
    expect(Array.from(kept.dataSync())).toEqual([1, 2, 3]);
    using live = new Tensor(a, "u8", [most]);
    expect(() => take(b)).toThrow(OutOfMemoryError);
    expect(live.shape).toEqual([most]);
    for (const each of [live, kept]) each.dispose();
    for (const each of [a, b]) void each.dispose();
  });

  it("a read for which the host has no memory throws an error and does not end the process", async () => {
    const device = new addon.Device(0);
    const at = addon.allocate(device, 64);
    const { ArrayBuffer: own } = globalThis;
    const lacking = Object.assign(
      function lacking(): never {
        throw new RangeError("Array buffer allocation failed");
      },
      { prototype: own.prototype },
    );
    try {
      Reflect.set(globalThis, "ArrayBuffer", lacking);
      for (const read of [addon.readSync, addon.read])
        expect(() => read(device, at, 64)).toThrow(/the host has no memory.*allocation failed/);
    } finally {
      Reflect.set(globalThis, "ArrayBuffer", own);
    }
    expect(addon.readSync(device, at, 64)).toHaveLength(64);
    addon.close(device);
  });
});

/** The arguments of `fill`, packed into slots. */
function filled(to: number, bytes: number, value: number): Float64Array {
  const slots = new Slots(NATIVE_CALLS.fill);
  WRITERS.fill(slots, { to, bytes, value });
  return slots.numbers;
}
