/** What cannot happen: a crash, whatever JavaScript passes; and what happens after a kernel has failed. */
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { platform } from "#platform";
import { type AddonExports, NATIVE_OPERATIONS } from "../../src/backends/addon.js";
import { openCuda } from "../../src/backends/cuda.js";
import { ABSENT, NATIVE_ARGUMENTS } from "../../src/backends/native-arguments.js";
import { encode } from "../../src/ops/cast.js";
import { tensor } from "../../src/ops/create.js";
import { describeOnGpu } from "../harness/gpu.js";

const addon = platform.loadAddon().exports as AddonExports;

/** An operation that works, or does not. */
function works(backend: ReturnType<typeof openCuda>): void {
  using x = tensor(backend, [1, -2]);
  using codes = encode(x, { format: "e4m3" });
  expect(Array.from(codes.dataSync())).toEqual([0x38, 0xc0]);
}

/** Numbers above all: sizes, addresses, negative, huge, fractional, and none at all. */
const numbers = (addresses: readonly number[]): fc.Arbitrary<number> =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(0, 1, 2, 3, 16, 32, 128, 1000) },
    { weight: 6, arbitrary: fc.constantFrom(...addresses) },
    {
      weight: 2,
      arbitrary: fc.constantFrom(-1, 0.5, Number.NaN, Infinity, 2 ** 31, 2 ** 40, 2 ** 53, 1e300),
    },
  );

const anything = (addresses: readonly number[]): fc.Arbitrary<unknown> =>
  fc.oneof(
    { weight: 9, arbitrary: numbers(addresses) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(undefined, null, true, "16", 16n, {}, [], () => 16, Symbol("x")),
    },
  );

const SLOTS = NATIVE_ARGUMENTS.length;

/** Some arguments given, others not. */
const slots = (addresses: readonly number[]): fc.Arbitrary<Float64Array> =>
  fc
    .tuple(fc.array(numbers(addresses), { minLength: 1, maxLength: 40 }), fc.integer({ min: 0, max: 9 }))
    .map(([drawn, absent]) => {
      const made = Float64Array.from({ length: SLOTS }, (_, i) => drawn[i % drawn.length] as number);
      const words = new BigUint64Array(made.buffer);
      for (let i = 0; absent > 0 && i < SLOTS; i += absent) words[i] = ABSENT;
      return made;
    });

/** What native code must not take for the array of arguments, and the array in other memory. */
function instead(given: Float64Array, kind: number): unknown {
  const shared = new Float64Array(new SharedArrayBuffer(8 * SLOTS));
  shared.set(given);
  const detached = given.slice();
  structuredClone(detached, { transfer: [detached.buffer] });
  const others = [
    shared,
    detached,
    given.subarray(1),
    new Float64Array(SLOTS + 1),
    new Float64Array(0),
    new Float32Array(SLOTS),
    new BigUint64Array(SLOTS),
    new Uint8Array(8 * SLOTS),
    new DataView(given.buffer),
    given.buffer,
    Array.from(given),
    new Proxy(given, {}),
    Object.create(given),
    { length: SLOTS },
    undefined,
    7,
  ];
  return others[kind] ?? given;
}

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
        slots(addresses),
        fc.integer({ min: 0, max: 99 }),
        fc.array(anything(addresses), { minLength: 3, maxLength: 3 }),
        (name, handle, given, kind, drawn) => {
          const isMemory = (memory as readonly string[]).includes(name);
          const args = isMemory ? drawn : [instead(given, kind)];
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
  it("all backends of that process on GPUs answer with an error, the first cause kept; others go on", () => {
    const mine = openCuda(addon);
    const script = fileURLToPath(new URL("../harness/fault.mjs", import.meta.url));
    const { status, stdout, stderr } = spawnSync(process.execPath, ["--no-warnings", script], {
      encoding: "utf8",
      timeout: 60_000,
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    const { before, first, again, live, answers, wasm } = JSON.parse(stdout);
    expect(before).toBe("56,192");
    expect(first).toMatch(/^BACKEND: .*cuda\w+/i);
    expect(again).toMatch(/broke earlier.*first cause: .*cuda\w+/i);
    expect(live).toBe(0);
    for (const answer of answers) expect(answer).toMatch(/^BACKEND: /);
    expect(wasm).toBe("56,192");
    works(mine);
    void mine.dispose();
  });
});
