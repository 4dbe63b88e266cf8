/** Helpers for GPU tests. Without a GPU the tests are skipped with a reason. */
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { AddonExports } from "../../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../../src/backends/cuda/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { platform } from "../../../../src/backends/platform/node.js";
import type { ProcessGroup } from "../../../../src/collectives/group.js";
import { loopbackOver } from "../../../../src/collectives/loopback/loopback.js";
import { fencedAddon } from "../addon/fenced.js";
import { NO_GPU } from "./no-gpu.js";

/** The number of inputs for each law; RUNS=10000 is the long suite. */
export const RUNS = Number(process.env.RUNS ?? 100);
export const SEED = Number(process.env.SEED ?? 1);

/** As `describe`. Without a GPU the tests are skipped with the reason. */
export function describeOnGpu(name: string, body: () => void): void {
  if (NO_GPU === undefined) describe(name, body);
  else describe.skip(`${name} (no GPU: ${NO_GPU})`, body);
}

/**
 * A GPU backend with fenced memory, and the reference to compare it with. After every test, neither may have live
 * memory.
 */
export function useGpu(): { gpu: () => Backend; reference: () => Backend } {
  const backends: Backend[] = [];
  const backendAt = (i: number) => (): Backend => backends[i] as Backend;
  beforeAll(async () => {
    const gpu = openCuda(fencedAddon(platform.loadAddon().exports as AddonExports));
    backends.push(gpu, await openBackend("wasm", { datapath: gpu.datapath }));
  });
  afterEach(() => {
    for (const backend of backends) expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(async () => {
    for (const backend of backends) await backend.dispose();
  });
  return { gpu: backendAt(0), reference: backendAt(1) };
}

/**
 * Creates groups of up to `most` ranks of one process, each with a GPU backend of its own on the same device. After every test,
 * no rank may have live memory.
 */
export function useGpuRanks(maxRanks: number): (size: number) => ProcessGroup[] {
  const backends: Backend[] = [];
  beforeAll(() => {
    for (let rank = 0; rank < maxRanks; rank++)
      backends.push(openCuda(fencedAddon(platform.loadAddon().exports as AddonExports)));
  });
  afterEach(() => {
    for (const backend of backends) expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(async () => {
    for (const backend of backends) await backend.dispose();
  });
  return (size) => loopbackOver(backends.slice(0, size));
}
