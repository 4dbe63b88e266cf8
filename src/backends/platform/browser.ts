/** The platform interface for browsers and other hosts with Web Workers. */
import type { Ambient, Platform } from "./platform.js";

/** Whether threads are possible. They need shared memory, which browsers allow only on cross-origin isolated pages. */
const canShare = globalThis.crossOriginIsolated === true && typeof Worker === "function";

export const platform: Platform = {
  parallelism: canShare ? navigator.hardwareConcurrency : 1,
  oneThread: canShare
    ? undefined
    : "this page shares no memory with workers; serve it with the headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp",
  mayBlock: typeof document === "undefined",
  spawn(body, data) {
    const source = `onmessage = (event) => (${body})(event.data)`;
    const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const release = () => URL.revokeObjectURL(url);
    try {
      const worker = new Worker(url);
      worker.postMessage(data);
      return {
        detach: release,
        terminate: async () => {
          worker.terminate();
          release();
        },
        state: () => "running",
        failed: new Promise((_, reject) => {
          // a content security policy that forbids the URL causes an event without a message
          worker.onerror = (event) =>
            reject(new Error(event.message || "its script was refused, as by a content security policy"));
        }),
      };
    } catch (error) {
      release();
      throw error;
    }
  },
  loadAddon: () => ({ attempts: ["a browser runs no native code"] }),
  /**
   * Creates a context value. Browsers cannot yet propagate a context across `await`: all code sees the value until the promise
   * that `body` returns is settled.
   */
  ambient<T extends object>(): Ambient<T> {
    let current: T | undefined;
    const assign = (outer: T | undefined) => {
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
            ? ((result as Promise<unknown>).finally(() => assign(outer)) as typeof result)
            : result;
        } finally {
          if (!awaited) assign(outer);
        }
      },
      set: assign,
    };
  },
};
