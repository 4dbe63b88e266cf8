/** The platform interface for Node. package.json's `#platform` selects this file or browser.ts. */
import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { AddonFound, Ambient, Platform } from "./platform.js";

export const platform: Platform = {
  parallelism: availableParallelism(),
  mayBlock: true,
  spawn(body, data) {
    // The source must run as a script and as a module, because the process's flags decide which it is. It runs in an immediate,
    // so that the thread's event loop has started: before that, `stateOf` cannot tell.
    const source = `import("node:worker_threads").then(({ workerData }) => setImmediate(() => (${body})(workerData)))`;
    const worker = new Worker(source, { eval: true, workerData: data });
    return {
      /** Unreferences the worker, which sleeps in Atomics.wait while the backend is open. */
      detach: () => worker.unref(),
      terminate: async () => {
        await worker.terminate();
      },
      state: () => stateOf(worker),
      failed: new Promise((_, reject) => {
        worker.once("error", reject);
        worker.once("exit", (code) => reject(new Error(`it ended with code ${code}`)));
      }),
    };
  },
  loadAddon,
  ambient<T extends object>(): Ambient<T> {
    const storage = new AsyncLocalStorage<T | undefined>();
    return {
      get: () => storage.getStore(),
      run: (value, body) => storage.run(value, body),
      set: (value) => storage.enterWith(value),
    };
  },
};

/**
 * Determines the state of a worker without waiting for the event loop, which delivers its events. The idle time of the worker's
 * own loop is available at once; for a stopped thread it is -1 if it was queried before. Active and idle time are 0 until the
 * loop starts.
 */
function stateOf(worker: Worker): "unknown" | "running" | "ended" {
  const { idle, active } = worker.performance.eventLoopUtilization();
  if (idle < 0 || worker.threadId < 0) return "ended";
  return active > 0 ? "running" : "unknown";
}

/** Tries the path in LOCKSTEP_ADDON, if set, then the build of `lockstep build-cuda`. */
function loadAddon(): AddonFound {
  const attempts: string[] = [];
  const { LOCKSTEP_ADDON } = process.env;
  for (const path of [...(LOCKSTEP_ADDON ? [LOCKSTEP_ADDON] : []), "#addon/Release", "#addon"]) {
    try {
      // inside the try block, because a CommonJS bundle has no import.meta.url
      return { exports: createRequire(import.meta.url)(path), attempts };
    } catch (error) {
      attempts.push(whyNot(path, error));
    }
  }
  return { attempts };
}

function whyNot(path: string, error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return `${path}: ${text.split("\n")[0]}`;
}
