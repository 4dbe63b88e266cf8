/** What the tests on a GPU share. Where there is none, they are skipped and the reason is printed. */
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import type { AddonExports } from "../../../../src/backends/cuda/addon.js";
import { openCuda } from "../../../../src/backends/cuda/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { platform } from "../../../../src/backends/platform/node.js";
import { fencedAddon } from "../addon/fenced.js";
import { NO_GPU } from "./no-gpu.js";

/** Inputs for each law; RUNS=10000 is the long suite. */
export const RUNS = Number(process.env.RUNS ?? 100);
export const SEED = Number(process.env.SEED ?? 1);

/** As `describe`, skipped with the reason where there is no GPU. */
export function describeOnGpu(name: string, body: () => void): void {
  if (NO_GPU === undefined) describe(name, body);
  else describe.skip(`${name} (no GPU: ${NO_GPU})`, body);
}

/** A GPU whose memory is fenced, and the reference it is held to. After every test nothing may live on either. */
export function useGpu(): { gpu: () => Backend; reference: () => Backend } {
  const opened: Backend[] = [];
  const nth = (i: number) => (): Backend => opened[i] as Backend;
  beforeAll(async () => {
    const gpu = openCuda(fencedAddon(platform.loadAddon().exports as AddonExports));
    opened.push(gpu, await openBackend("wasm", { datapath: gpu.datapath }));
  });
  afterEach(() => {
    for (const backend of opened) expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(async () => {
    for (const backend of opened) await backend.dispose();
  });
  return { gpu: nth(0), reference: nth(1) };
}
