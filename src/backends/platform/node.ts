/** What the reference needs of Node. package.json's `#platform` picks this file or browser.ts. */
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import type { Platform } from "./platform.js";

export const platform: Platform = {
  parallelism: availableParallelism(),
  mayBlock: true,
  spawn(body, data) {
    const source = `(${body})(require("node:worker_threads").workerData)`;
    const worker = new Worker(source, { eval: true, workerData: data });
    return {
      /** The worker keeps no process alive: it sleeps in Atomics.wait for as long as the backend is open. */
      detach: () => worker.unref(),
      terminate: async () => {
        await worker.terminate();
      },
      failed: new Promise((_, reject) => worker.once("error", reject)),
    };
  },
};
