/**
 * Threads that fail to start, end on their own, or are no longer needed: none is left running, and their memory is
 * freed.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, it, vi } from "vitest";
import { platform } from "#platform";
import { openBackend } from "../../../../../src/backends/open.js";
import type { WorkerHandle } from "../../../../../src/backends/platform/platform.js";
import { openWasmOver } from "../../../../../src/backends/wasm/backend.js";
import { MAX_BLOCK } from "../../../../../src/backends/wasm/heap.js";
import { openInstance } from "../../../../../src/backends/wasm/instance.js";
import { BackendError, OutOfMemoryError } from "../../../../../src/errors.js";
import { encode } from "../../../../../src/ops/cast/cast.js";
import { empty, tensor } from "../../../../../src/ops/create.js";
import type { Tensor } from "../../../../../src/tensor/tensor.js";

afterEach(() => vi.restoreAllMocks());

type Spawn = typeof platform.spawn;

/** The ways in which worker number `k` fails to start. */
const FAULTS: Readonly<Record<string, (real: Spawn) => Spawn>> = {
  "is refused at once": () => () => {
    throw new Error("refused");
  },
  "breaks before it is ready": () => () => handle({ failed: Promise.reject(new Error("refused")) }),
  "has a script that fails": (real) => (_, data) => real("() => { throw new Error('refused') }", data),
  "ends before it is ready": (real) => (_, data) => real("() => process.exit(3) /* refused */", data),
};

function handle(fields: Partial<WorkerHandle>): WorkerHandle {
  return {
    detach: () => {},
    terminate: async () => {},
    state: () => "running",
    failed: new Promise(() => {}),
    ...fields,
  };
}

/**
 * Makes the worker of that number fail. Returns a function that counts the workers that were started and not
 * terminated.
 */
function breakWorker(k: number, fault: (real: Spawn) => Spawn): () => number {
  const real: Spawn = platform.spawn.bind(platform);
  let startedWorkers = 0;
  let running = 0;
  vi.spyOn(platform, "spawn").mockImplementation((body, data) => {
    const worker = startedWorkers++ === k ? fault(real)(body, data) : real(body, data);
    running++;
    let isCounted = true;
    const terminate = async (): Promise<void> => {
      await worker.terminate();
      if (isCounted) running--;
      isCounted = false;
    };
    return { ...worker, terminate };
  });
  return () => running;
}

describe("a worker that", () => {
  for (const [name, fault] of Object.entries(FAULTS)) {
    for (const k of [0, 1, 2]) {
      it(`${name}, number ${k} of 3: the other workers end too`, async () => {
        const running = breakWorker(k, fault);
        const opening = openBackend("wasm", { threads: 4 });
        await expect(opening).rejects.toThrow(BackendError);
        await expect(opening).rejects.toThrow(/thread could not be started.*threads: 1/);
        expect(running()).toBe(0);
      });
    }

    it(`${name}, without a requested number of threads: the backend uses fewer threads and reports why`, async () => {
      const warn = vi.spyOn(console, "warn").mockReturnValue();
      vi.spyOn(platform, "parallelism", "get").mockReturnValue(3);
      const running = breakWorker(1, fault);
      const backend = await openBackend("wasm");
      expect(backend.threads).toBe(1);
      expect(backend.fewerThreads).toMatch(/thread could not be started/);
      expect(warn).toHaveBeenCalledTimes(1);
      expect(running()).toBe(0);
      const codes = encode(tensor(backend, [1, 2]), { format: "e4m3" });
      expect(codes.dataSync()).toEqual(Uint8Array.of(0x38, 0x40));
      await backend.dispose();
    });
  }

  it("ends on its own gets no more jobs, and results stay the same", async () => {
    const workers: WorkerHandle[] = [];
    const real: Spawn = platform.spawn.bind(platform);
    vi.spyOn(platform, "spawn").mockImplementation((body, data) => {
      const worker = real(body, data);
      workers.push(worker);
      return worker;
    });
    const backend = await openBackend("wasm", { threads: 3 });
    const x = tensor(backend, new Float32Array(1 << 20).fill(1));
    for (let remaining = 2; remaining >= 0; remaining--) {
      expect(backend.threads).toBe(remaining + 1);
      expect(new Set(encode(x, { format: "e4m3" }).dataSync())).toEqual(new Set([0x38]));
      await workers[remaining - 1]?.terminate();
    }
    await backend.dispose();
  });
});

it("a process whose threads cannot start ends by itself", () => {
  const script = `
    import { platform } from "#platform";
    import { openBackend } from "./dist/src/index.js";
    const { spawn } = platform;
    let started = 0;
    platform.spawn = (body, data) => spawn.call(platform, started++ ? "() => { throw new Error('refused') }" : body, data);
    await openBackend("wasm", { threads: 3 }).catch((error) => console.log(error.code));
  `;
  const { stdout, stderr, signal } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    encoding: "utf8",
    timeout: 30_000,
    cwd: new URL("../../../../..", import.meta.url),
  });
  expect({ stdout, stderr, signal }).toEqual({ stdout: "BACKEND\n", stderr: "", signal: null });
});

it.each(["--input-type=commonjs", "--input-type=module", "--unhandled-rejections=none"])(
  "threads start in a process under %s",
  (flag) => {
    const script = `import("./dist/src/index.js").then(async ({ openBackend }) => {
    const backend = await openBackend("wasm", { threads: 3 });
    console.log(backend.threads);
    await backend.dispose();
  })`;
    const { stdout, stderr } = spawnSync(process.execPath, [flag, "--eval", script], {
      encoding: "utf8",
      timeout: 30_000,
      cwd: new URL("../../../../..", import.meta.url),
    });
    expect({ stdout, stderr }).toEqual({ stdout: "3\n", stderr: "" });
  },
);

it("the pool's count of jobs may pass 2^31", () => {
  const script = `
    import { platform } from "#platform";
    import { encode, openBackend, tensor } from "./dist/src/index.js";
    const { spawn } = platform;
    const first = 2 ** 31 - 3;
    const headers = [];
    platform.spawn = (body, data) => {
      headers.push(new Int32Array(data.memory.buffer, data.control, 2).fill(first));
      return spawn.call(platform, body, data);
    };
    const backend = await openBackend("wasm", { threads: 3 });
    while (headers.some((header) => Atomics.load(header, 1) === first)) await new Promise((r) => setTimeout(r, 1));
    const x = tensor(backend, new Float32Array(2 ** 20).fill(1));
    for (let job = 0; job < 6; job++) {
      console.log(encode(x, { format: "e4m3" }).dataSync().every((code) => code === 0x38));
    }
    await backend.dispose();
  `;
  const { stdout, stderr, signal } = spawnSync(process.execPath, ["--input-type=module", "--eval", script], {
    encoding: "utf8",
    timeout: 30_000,
    cwd: new URL("../../../../..", import.meta.url),
  });
  expect({ stdout, stderr, signal }).toEqual({ stdout: "true\n".repeat(6), stderr: "", signal: null });
});

describe("a backend that is disposed of", () => {
  setFlagsFromString("--expose_gc");
  const collect = runInNewContext("gc") as () => void;

  for (const threads of [1, 3]) {
    it(`frees its address space, even while its tensors are referenced: ${threads} threads`, async () => {
      const tensors: Tensor[] = [];
      const openAndDispose = async (): Promise<WeakRef<WebAssembly.Memory>> => {
        const instance = await openInstance();
        const backend = await openWasmOver(instance, { threads });
        tensors.push(encode(tensor(backend, new Float32Array(1 << 19)), { format: "e4m3" }));
        await backend.dispose();
        expect(backend.memoryUse().reserved).toBe(0);
        return new WeakRef(instance.memory);
      };
      const memory = await openAndDispose();
      for (let i = 0; i < 20 && memory.deref(); i++) {
        await new Promise((resolve) => setTimeout(resolve, 10));
        collect();
      }
      expect(memory.deref()).toBeUndefined();
      for (const tensor of tensors) tensor.dispose();
    });
  }
});

it("a tensor may have the maximum number of bytes in the guide, and not one more", async () => {
  const backend = await openBackend("wasm", { threads: 1 });
  const guide = readFileSync(new URL("../../../../../docs/guide.md", import.meta.url), "utf8");
  expect(guide).toContain(`${MAX_BLOCK.toLocaleString("en")} bytes`);
  const x = empty(backend, "u8", [MAX_BLOCK]);
  x.dispose();
  expect(() => empty(backend, "u8", [MAX_BLOCK + 1])).toThrow(OutOfMemoryError);
  expect(() => empty(backend, "u8", [MAX_BLOCK + 1])).toThrow(`${MAX_BLOCK} bytes`);
  expect(() => empty(backend, "f32", [2 ** 50])).toThrow(OutOfMemoryError);
  expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  await backend.dispose();
});
