/** The platform interface: the functions that Node and browsers implement differently. */

/** A running worker thread. */
export interface WorkerHandle {
  /** Lets the process exit even if the worker is running. Called after the worker has started. */
  detach(): void;
  terminate(): Promise<void>;
  /**
   * Returns the state of the worker as far as the host knows it without running its event loop. It is `unknown` until the
   * worker runs. A browser never reports `ended`, because there a worker ends only by itself or together with its page.
   */
  state(): "unknown" | "running" | "ended";
  /** A promise that rejects when the worker fails or ends. It never resolves. */
  readonly failed: Promise<never>;
}

/** The native addon's exports, if it could be loaded, and one line for each failed attempt. */
export interface AddonFound {
  readonly exports?: unknown;
  readonly attempts: readonly string[];
}

/** A context value that is propagated across `await`, by AsyncLocalStorage if the host has it. */
export interface Ambient<T extends object> {
  get(): T | undefined;
  /** Runs `body` with the value set. Code that `body` awaits sees the value too. */
  run<R>(value: T | undefined, body: () => R): R;
  /** Sets the value for the rest of this async context. */
  set(value: T | undefined): void;
}

export interface Platform {
  ambient<T extends object>(): Ambient<T>;
  /** The number of threads that the host suggests. */
  readonly parallelism: number;
  /** Why `parallelism` is 1. Set if the host does not allow more threads. */
  readonly oneThread?: string | undefined;
  /** Whether the main thread may block in Atomics.wait. */
  readonly mayBlock: boolean;
  /**
   * Runs a function in a worker, with `data` as its argument. `body` is the source text of the function, which must not refer
   * to anything outside itself.
   */
  spawn(body: string, data: object): WorkerHandle;
  /** Tries to load the addon of the CUDA backend. It never throws. */
  loadAddon(): AddonFound;
}
