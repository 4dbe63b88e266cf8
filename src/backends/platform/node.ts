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
    const source = `import("node:worker_threads").then(({ workerData }) => (${body})(workerData))`;
    const worker = new Worker(source, { eval: true, workerData: data });
    return {
      /** The worker keeps no process alive: it sleeps in Atomics.wait for as long as the backend is open. */
      detach: () => worker.unref(),
      terminate: async () => {
        await worker.terminate();
      },
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
