/** What the reference needs of Node. package.json's `#platform` picks this file or browser.ts. */
import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { AddonFound, Ambient, Platform } from "./platform.js";

export const platform: Platform = {
  parallelism: availableParallelism(),
  mayBlock: true,
  spawn(body, data) {
    // runs as a script and as a module: which of them it is follows the process's flags
    // and as an immediate, so that the thread's event loop runs: before that `stateOf` knows nothing
    const source = `import("node:worker_threads").then(({ workerData }) => setImmediate(() => (${body})(workerData)))`;
    const worker = new Worker(source, { eval: true, workerData: data });
    return {
      /** The worker keeps no process alive: it sleeps in Atomics.wait for as long as the backend is open. */
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
 * Events of a worker wait for the event loop; the idle time of its own loop is asked for at once, and is -1 for a thread that was
 * stopped, if it has been asked for before. Both times are 0 before the loop starts.
 */
function stateOf(worker: Worker): "unknown" | "running" | "ended" {
  const { idle, active } = worker.performance.eventLoopUtilization();
  if (idle < 0 || worker.threadId < 0) return "ended";
  return active > 0 ? "running" : "unknown";
}

/** Tries LOCKSTEP_ADDON, a path, where it is set; then what `lockstep build-cuda` builds. */
function loadAddon(): AddonFound {
  const attempts: string[] = [];
  const { LOCKSTEP_ADDON } = process.env;
  for (const place of [...(LOCKSTEP_ADDON ? [LOCKSTEP_ADDON] : []), "#addon/Release", "#addon"]) {
    try {
      // inside, since a bundle of CommonJS has no import.meta.url
      return { exports: createRequire(import.meta.url)(place), attempts };
    } catch (error) {
      attempts.push(whyNot(place, error));
    }
  }
  return { attempts };
}

function whyNot(place: string, error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return `${place}: ${text.split("\n")[0]}`;
}
