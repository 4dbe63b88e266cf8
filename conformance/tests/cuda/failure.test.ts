/** No JavaScript argument crashes the process. After a kernel has failed, the backend behaves as documented. */
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { expect, it } from "vitest";
import { platform } from "#platform";
import type { AddonExports } from "../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../src/backends/cuda/backend.js";
import { encode } from "../../../src/ops/cast/cast.js";
import { tensor } from "../../../src/ops/create.js";
import { survivesAnyArguments } from "../harness/addon/arguments.js";
import { describeOnGpu, SEED } from "../harness/gpu/gpu.js";

const addon = platform.loadAddon().exports as AddonExports;

/** Checks that the backend still computes. */
function works(backend: ReturnType<typeof openCuda>): void {
  using x = tensor(backend, [1, -2]);
  using codes = encode(x, { format: "e4m3" });
  expect(Array.from(codes.dataSync())).toEqual([0x38, 0xc0]);
}

describeOnGpu("the addon cannot be crashed", () => {
  it("by arguments of any kind: it works or throws an Error, and goes on working", async () => {
    const backend = openCuda(addon);
    await survivesAnyArguments(addon, { numRuns: 20_000, seed: SEED });
    works(backend);
    void backend.dispose();
  });

  it("by worker threads that open a backend of their own", async () => {
    const path = process.env.LOCKSTEP_ADDON ?? createRequire(import.meta.url).resolve("#addon/Release");
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
  it("every GPU backend of the process throws an error with the first cause, and backends of other devices still work", () => {
    const mine = openCuda(addon);
    const script = fileURLToPath(new URL("../harness/gpu/fault.mjs", import.meta.url));
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
