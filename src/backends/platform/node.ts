/** The platform interface for Node. The package import `#platform` selects this file or browser.ts. */
import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { messageOf } from "../../errors.js";
import type { AddonFound, Ambient, Platform } from "./platform.js";

export const platform: Platform = {
  parallelism: availableParallelism(),
  mayBlock: true,
  spawn(body, data) {
    // The source must run both as a script and as a module, because flags of the process decide which of them it is.
    // setImmediate delays the body until the event loop of the thread has started; before that, `stateOf` cannot tell the
    // state.
    const source = `import("node:worker_threads").then(({ workerData }) => setImmediate(() => (${body})(workerData)))`;
    const worker = new Worker(source, { eval: true, workerData: data });
    return {
      /** Unreferences the worker, which sleeps in Atomics.wait while the backend is open, so that the process can exit. */
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
 * Returns the state of a worker at once, without waiting for the event loop of this thread to deliver the worker's events. It
 * uses the utilization of the worker's own event loop. The active and idle times are 0 until that loop starts. The idle time of
 * a stopped thread is -1 if it was queried before.
 */
function stateOf(worker: Worker): "unknown" | "running" | "ended" {
  const { idle, active } = worker.performance.eventLoopUtilization();
  if (idle < 0 || worker.threadId < 0) return "ended";
  return active > 0 ? "running" : "unknown";
}

/**
 * Tries to load the addon from the path in the environment variable LOCKSTEP_ADDON, if set, and then from where `lockstep
 * build-cuda` puts it.
 */
function loadAddon(): AddonFound {
  const attempts: string[] = [];
  const { LOCKSTEP_ADDON } = process.env;
  for (const path of [...(LOCKSTEP_ADDON ? [LOCKSTEP_ADDON] : []), "#addon/Release", "#addon"]) {
    try {
      // in the try block, because import.meta.url does not exist in a CommonJS bundle
      return { exports: createRequire(import.meta.url)(path), attempts };
    } catch (error) {
      attempts.push(whyNot(path, error));
    }
  }
  return { attempts };
}

function whyNot(path: string, error: unknown): string {
  const message = messageOf(error);
  return `${path}: ${message.split("\n")[0]}`;
}
