/** GPUs for which the addon has no code are refused at opening; the error names the GPU and the remedy. */
import * as fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { deviceFault } from "../../../../src/backends/cuda/architectures.js";
import { draws } from "../../harness/draws.js";

const DEFAULT = "89-real 90a-real 100a-real";
const CAPABILITIES = [50, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121];

const gpu = (capability: number) => ({
  name: `GPU ${capability}`,
  major: Math.floor(capability / 10),
  minor: capability % 10,
  multiprocessors: 1,
  bytes: 2 ** 30,
  uuid: "0",
});

/** The compute capabilities, among those above, on which code for an entry runs, by NVIDIA's rules of compatibility. */
const RUNS: Readonly<Record<string, readonly number[]>> = {
  "89-real": [89],
  "90-real": [90],
  "90a-real": [90],
  "90a": [90],
  "100-real": [100, 101, 103],
  "100a-real": [100],
  "100f-real": [100, 101, 103],
  "103a-virtual": [103],
  "120-real": [120, 121],
  "120f": [120, 121],
  "89-virtual": [89, 90, 100, 101, 103, 110, 120, 121],
  "100": [100, 101, 103, 110, 120, 121],
  "120-virtual": [120, 121],
};
const ENTRIES = Object.keys(RUNS);

it.each(ENTRIES)("code for %s runs on the GPUs that NVIDIA's rules name, and on no other", (entry) => {
  const accepting = CAPABILITIES.filter((capability) => deviceFault(entry, gpu(capability)) === undefined);
  expect(accepting).toEqual(RUNS[entry]);
});

it("a GPU runs a list if it runs one of its entries; else the message has its capability, the list and a command", () => {
  fc.assert(
    fc.property(
      fc.subarray(ENTRIES, { minLength: 1 }),
      fc.constantFrom(...CAPABILITIES.filter((capability) => capability >= 89)),
      fc.constantFrom(" ", ";"),
      (entries, capability, separator) => {
        const fault = deviceFault(entries.join(separator), gpu(capability));
        expect(fault === undefined).toBe(entries.some((entry) => RUNS[entry]?.includes(capability)));
        if (fault === undefined) return;
        expect(fault).toContain(`GPU ${capability} is sm_${capability}`);
        for (const entry of entries) expect(fault).toContain(`sm_${entry.replace("-real", "")}`);
        const command = /build-cuda --architectures (\S+)`/.exec(fault)?.[1] as string;
        // the code that the command builds runs on the GPU
        expect(deviceFault(command, gpu(capability))).toBeUndefined();
      },
    ),
    { numRuns: draws(200) },
  );
});

describe("openBackend", () => {
  afterEach(() => {
    vi.restoreAllMocks();
    vi.resetModules();
  });

  /** The modules that open backends, on a machine with these GPUs and an addon that was compiled for `architectures`. */
  async function machine(capabilities: readonly number[], architectures: string | undefined = DEFAULT) {
    vi.resetModules();
    const { platform } = await import("#platform");
    const { NATIVE_OPERATIONS } = await import("../../../../src/backends/cuda/native-calls.js");
    const openedDevices: number[] = [];
    const calls = Object.fromEntries(NATIVE_OPERATIONS.map((name) => [name, () => undefined]));
    const versions = { runtime: 13000, driver: 13000, cublasLt: 130100 };
    vi.spyOn(platform, "loadAddon").mockReturnValue({
      attempts: [],
      exports: {
        ...calls,
        devices: () => capabilities.map(gpu),
        versions: () => (architectures === "" ? versions : { ...versions, architectures }),
        Device: class {
          constructor(device: number) {
            openedDevices.push(device);
          }
        },
      },
    });
    return { opened: openedDevices, ...(await import("../../../../src/backends/open.js")) };
  }

  it.each([
    [[80], /GPU 80 is sm_80; FP8 needs sm_89 or later/],
    [
      [103],
      /GPU 103 is sm_103, and the addon has code for sm_89, sm_90a, sm_100a only; .*--architectures 103a-real/,
    ],
    [[120], /GPU 120 is sm_120, and the addon .*--architectures 120a-real/],
    [[80, 120], /GPU 80 is sm_80; .*GPU 120 is sm_120/],
  ])("refuses GPUs %j, and auto opens the reference", async (capabilities, message) => {
    const { openBackend, missingBackends, opened: openedDevices } = await machine(capabilities);
    await expect(openBackend("cuda")).rejects.toMatchObject({
      code: "BACKEND",
      message: expect.stringMatching(message),
    });
    const [missing] = missingBackends();
    expect(missing?.attempts.length).toBe(capabilities.length);
    const auto = await openBackend("auto", { threads: 1 });
    expect([auto.name, openedDevices]).toEqual(["wasm", []]);
    await auto.dispose();
  });

  it("opens the GPU that has code, and refuses another one that has none", async () => {
    const { openBackend, cudaDevices, missingBackends, opened: openedDevices } = await machine([120, 90]);
    expect(missingBackends()).toEqual([]);
    expect(cudaDevices().map(({ fault }) => fault === undefined)).toEqual([false, true]);
    await expect(openBackend("cuda")).rejects.toThrow(/GPU 120 is sm_120/);
    const auto = await openBackend("auto", { threads: 1 });
    expect([auto.name, openedDevices]).toEqual(["wasm", []]);
    await auto.dispose();
    expect((await openBackend("cuda", { device: 1 })).description).toMatch("GPU 90, sm_90");
    expect(openedDevices).toEqual([1]);
  });

  it("asks for a new build of an addon that does not say what it was compiled for", async () => {
    const { openBackend } = await machine([90], "");
    await expect(openBackend("cuda")).rejects.toThrow(
      /built from other sources; run `npx lockstep build-cuda` again/,
    );
  });
});
