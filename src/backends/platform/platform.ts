/** The platform interface: what differs between Node and browsers. */

/** A running worker. */
export interface WorkerHandle {
  /** Lets the process exit while the worker runs; called once it has started. */
  detach(): void;
  terminate(): Promise<void>;
  /**
   * The state known to the host without a turn of the event loop: `unknown` until it runs. A browser cannot see an end: there,
   * a worker ends only by itself or with its page.
   */
  state(): "unknown" | "running" | "ended";
  /** Rejects when the worker fails or ends; never resolves. */
  readonly failed: Promise<never>;
}

/** The native addon, if it could be loaded, and the failed attempts, one line each. */
export interface AddonFound {
  readonly exports?: unknown;
  readonly attempts: readonly string[];
}

/** An async context value, propagated across `await`: AsyncLocalStorage, if the host has it. */
export interface Ambient<T extends object> {
  get(): T | undefined;
  /** Runs `body` with the value set; what it awaits sees it too. */
  run<R>(value: T | undefined, body: () => R): R;
  /** Sets the value for the rest of this async context. */
  set(value: T | undefined): void;
}

export interface Platform {
  ambient<T extends object>(): Ambient<T>;
  /** The number of threads that the host suggests. */
  readonly parallelism: number;
  /** Why that is 1, if the host forbids more. */
  readonly oneThread?: string | undefined;
  /** Whether the main thread may block in Atomics.wait. */
  readonly mayBlock: boolean;
  /** Runs `body`, the source of a self-contained function, in a worker, with `data` as its argument. */
  spawn(body: string, data: object): WorkerHandle;
  /** Loads the addon of the CUDA backend. Never throws. */
  loadAddon(): AddonFound;
}
