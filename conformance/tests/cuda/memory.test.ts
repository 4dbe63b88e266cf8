/**
 * Memory of a GPU: reads return what earlier writes stored, in the order of the calls; nothing leaks; an allocation
 * that is too large throws a typed error.
 */
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { cudaDevices, openBackend } from "../../../src/backends/open.js";
import { ArgumentError, DisposedError, OutOfMemoryError } from "../../../src/errors.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { Tensor } from "../../../src/tensor/tensor.js";
import { words } from "../../arbitraries/random.js";
import { describeOnGpu, useGpu } from "../harness/gpu/gpu.js";

describeOnGpu("memory of a GPU", () => {
  const { gpu, reference } = useGpu();

  it("returns what was written, for any size", async () => {
    const sizes = fc.oneof(
      fc.nat({ max: 5000 }),
      fc.constantFrom(0, 2 ** 21 - 1, 2 ** 21, 2 ** 21 + 1, 5e6, 17e6 + 1),
    );
    await fc.assert(
      fc.asyncProperty(sizes, fc.nat(), async (count, seed) => {
        using _scope = new Scope();
        const data = words(seed, count);
        const x = new Tensor(gpu(), "u32", [count]).write(data);
        for (const read of [await x.data(), x.dataSync()])
          expect(Buffer.compare(Buffer.from(read.buffer), Buffer.from(data.buffer))).toBe(0);
      }),
      { numRuns: 30 },
    );
  });

  it("returns the contents at the time of the call, whatever is enqueued later", async () => {
    using x = new Tensor(gpu(), "u32", [1 << 20]).write(new Uint32Array(1 << 20).fill(1));
    const first = x.data();
    x.write(new Uint32Array(1 << 20).fill(2));
    const second = x.data();
    const unread = new Tensor(gpu(), "u32", [1 << 20]).write(new Uint32Array(1 << 20).fill(3));
    const third = unread.data();
    unread.dispose();
    expect((await first).every((word) => word === 1)).toBe(true);
    expect((await second).every((word) => word === 2)).toBe(true);
    expect((await third).every((word) => word === 3)).toBe(true);
  });

  it.each([1, 3 << 20, 20 << 20])(
    "reads %i words in many concurrent reads, each with the contents at the time of its call",
    async (count) => {
      using x = new Tensor(gpu(), "u32", [count]);
      const reads = Array.from({ length: 12 }, (_, i) => x.write(new Uint32Array(count).fill(i)).data());
      for (const [i, read] of reads.entries()) expect((await read).findIndex((word) => word !== i)).toBe(-1);
    },
  );

  it("that one backend keeps for reuse can be allocated by another, and trim() frees it", async () => {
    const other = await openBackend("cuda");
    const { bytes } = cudaDevices()[0] as { bytes: number };
    const most = Math.floor(bytes * 0.6);
    for (const backend of [gpu(), other, gpu()]) {
      const x = new Tensor(backend, "u8", [most]);
      expect(backend.memoryUse().reserved).toBeGreaterThanOrEqual(most);
      x.dispose();
    }
    using kept = tensor(gpu(), [1, 2, 3]);
    gpu().trim();
    expect(gpu().memoryUse().reserved).toBeLessThan(2 ** 28);
    expect(Array.from(kept.dataSync())).toEqual([1, 2, 3]);
    await other.dispose();
  });

  it("is read completely if several long reads are in progress while its backend is closed", async () => {
    const other = await openBackend("cuda");
    const tensors = [1, 2, 3].map((word) =>
      new Tensor(other, "u32", [3 << 20]).write(new Uint32Array(3 << 20).fill(word)),
    );
    const reads = tensors.map((x) => x.data());
    await other.dispose();
    for (const [i, read] of reads.entries())
      expect((await read).findIndex((word) => word !== i + 1)).toBe(-1);
    for (const x of tensors) x.dispose();
  });

  it("accepts shared memory", () => {
    const shared = new Float32Array(new SharedArrayBuffer(64), 8, 3);
    shared.set([1, -2, 3]);
    using x = new Tensor(gpu(), "f32", [3]).write(shared);
    expect(Array.from(x.dataSync())).toEqual([1, -2, 3]);
  });

  it("the error has the requested and the free bytes, and every tensor stays usable", () => {
    using x = tensor(gpu(), [1, 2, 3]);
    const expected = 2 ** 50;
    const ask = () => new Tensor(gpu(), "u8", [expected]);
    expect(ask).toThrow(OutOfMemoryError);
    expect(ask).toThrow(new RegExp(`wanted ${expected} bytes.*\\d+ bytes are free`));
    expect(Array.from(x.dataSync())).toEqual([1, 2, 3]);
    using codes = encode(x, { format: "e4m3" });
    expect(Array.from(codes.dataSync())).toEqual([0x38, 0x40, 0x44]);
  });

  it("is a backend's own: another's tensors and a closed one's are refused", async () => {
    const other = await openBackend("cuda");
    const theirs = tensor(other, [1]);
    const here = tensor(reference(), [1]);
    expect(() => gpu().memory.readSync(theirs.address, 4)).toThrow(ArgumentError);
    expect(() => gpu().memory.readSync(here.address, 4)).toThrow(ArgumentError);
    here.dispose();
    const pending = theirs.data();
    await other.dispose();
    expect(Array.from(await pending)).toEqual([1]);
    expect(() => theirs.dataSync()).toThrow(DisposedError);
    theirs.dispose();
    await other.dispose();
    using mine = tensor(gpu(), [4]);
    expect(Array.from(mine.dataSync())).toEqual([4]);
  });
});
