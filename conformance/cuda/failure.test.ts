/** What cannot happen: a crash, whatever JavaScript passes; and what happens after a kernel has failed. */
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { platform } from "#platform";
import { type Addon, NATIVE_OPERATIONS } from "../../src/backends/addon.js";
import { openCuda } from "../../src/backends/cuda.js";
import { encode } from "../../src/ops/cast.js";
import { tensor } from "../../src/ops/create.js";
import { describeOnGpu } from "../harness/gpu.js";

const addon = platform.loadAddon().exports as Addon;

/** An operation that works, or does not. */
function works(backend: ReturnType<typeof openCuda>): void {
  using x = tensor(backend, [1, -2]);
  using codes = encode(x, { format: "e4m3" });
  expect(Array.from(codes.dataSync())).toEqual([0x38, 0xc0]);
}

/** Anything at all, numbers above all: sizes, addresses, negative, huge, fractional. */
const anything = (addresses: readonly number[]): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(0, 1, 2, 3, 16, 32, 128, 1000) },
    { weight: 6, arbitrary: fc.constantFrom(...addresses) },
    {
      weight: 2,
      arbitrary: fc.constantFrom(-1, 0.5, Number.NaN, Infinity, 2 ** 31, 2 ** 40, 2 ** 53, 1e300),
    },
    {
      weight: 1,
      arbitrary: fc.constantFrom(undefined, null, true, "16", 16n, {}, [], () => 16, Symbol("x")),
    },
  );

describeOnGpu("the addon cannot be crashed", () => {
  it("by arguments of any kind: it works or throws an Error, and goes on working", () => {
    const backend = openCuda(addon);
    const device = new addon.Device(0);
    const addresses = [64, 4096, 2 ** 20].map((bytes) => addon.allocate(device, bytes));
    const memory = ["write", "readSync", "free", "allocate", "memory"] as const;
    const seen = { returned: 0, threw: 0 };
    fc.assert(
      fc.property(
        fc.constantFrom(...NATIVE_OPERATIONS, ...memory),
        fc.constantFrom<unknown>(device, device, device, device, {}, undefined, 7),
        fc.array(anything(addresses), { minLength: 40, maxLength: 40 }),
        (name, handle, drawn) => {
          let next = 0;
          const named = new Proxy({}, { get: () => drawn[next++ % drawn.length] });
          const isMemory = (memory as readonly string[]).includes(name);
          const args = isMemory ? drawn.slice(0, 3) : [named];
          try {
            Reflect.apply(addon[name] as (...args: unknown[]) => unknown, addon, [handle, ...args]);
            seen.returned++;
          } catch (error) {
            expect(error).toBeInstanceOf(Error);
            seen.threw++;
          }
        },
      ),
      { numRuns: 20_000 },
    );
    expect(seen.threw).toBeGreaterThan(1000);
    addon.synchronize(device);
    addon.close(device);
    works(backend);
    void backend.dispose();
  });

  it("by worker threads that open a backend of their own", async () => {
    const path = createRequire(import.meta.url).resolve("#addon/Release");
    const body = `
      const addon = require(${JSON.stringify(path)});
      const device = new addon.Device(0);
      const at = addon.allocate(device, 8);
      addon.write(device, at, Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]));
      require("node:worker_threads").parentPort.postMessage(addon.readSync(device, at, 8));`;
    const answers = Array.from(
      { length: 4 },
      () =>
        new Promise((resolve, reject) => {
          const worker = new Worker(body, { eval: true });
          worker.once("message", resolve).once("error", reject);
        }),
    );
    for (const answer of await Promise.all(answers))
      expect(answer).toEqual(Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8]));
  });
});

describeOnGpu("after a kernel has failed", () => {
  it("the backend keeps the first cause, and another is unaffected", async () => {
    const other = openCuda(addon);
    const device = new addon.Device(0);
    addon.fault(device);
    expect(() => addon.synchronize(device)).toThrow(/cuda\w+/i);
    const again = () => addon.allocate(device, 16);
    expect(again).toThrow(/broke earlier.*first cause/);
    expect(addon.memory(device).live).toBe(0);
    addon.close(device);
    works(other);
    await other.dispose();
    const fresh = openCuda(addon);
    works(fresh);
    await fresh.dispose();
  });
});
