/** What the reference needs of a browser, or of any host with Web Workers. */
import type { Ambient, Platform } from "./platform.js";

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
  /** Browsers follow no flow across `await` yet: what runs there sees the value until `body`'s promise settles. */
  ambient<T extends object>(): Ambient<T> {
    let current: T | undefined;
    const settle = (outer: T | undefined) => {
      current = outer;
    };
    return {
      get: () => current,
      run(value, body) {
        const outer = current;
        current = value;
        let awaited = false;
        try {
          const result = body();
          awaited = result instanceof Promise;
          return awaited
            ? ((result as Promise<unknown>).finally(() => settle(outer)) as typeof result)
            : result;
        } finally {
          if (!awaited) settle(outer);
        }
      },
      set: settle,
    };
  },
};
