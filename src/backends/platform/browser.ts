/** What the reference needs of a browser, or of any host with Web Workers. */
import type { Platform } from "./platform.js";

/** Threads need shared memory that can be posted, which browsers allow on cross-origin isolated pages only. */
const canShare = globalThis.crossOriginIsolated === true && typeof Worker === "function";

export const platform: Platform = {
  parallelism: canShare ? navigator.hardwareConcurrency : 1,
  mayBlock: typeof document === "undefined",
  spawn(body, data) {
    const source = `onmessage = (event) => (${body})(event.data)`;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const worker = new Worker(url);
    worker.postMessage(data);
    return {
      detach: () => URL.revokeObjectURL(url),
      terminate: async () => worker.terminate(),
      failed: new Promise((_, reject) => {
        worker.onerror = (event) => reject(new Error(event.message));
      }),
    };
  },
  loadAddon: () => ({ attempts: ["a browser runs no native code"] }),
};
