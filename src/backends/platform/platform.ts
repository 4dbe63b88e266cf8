/** The few things that Node and browsers spell differently. */

/** A running worker. */
export interface WorkerHandle {
  /** Called once the worker runs. */
  detach(): void;
  terminate(): Promise<void>;
  /**
   * What the host knows of it, without a turn of the event loop: `unknown` until it runs. A browser sees no end: there a worker
   * ends by itself or with its page.
   */
  state(): "unknown" | "running" | "ended";
  /** Rejects when the worker breaks or ends; never resolves. */
  readonly failed: Promise<never>;
}

/** The native addon where it could be loaded, and what failed before: one line an attempt. */
export interface AddonFound {
  readonly exports?: unknown;
  readonly attempts: readonly string[];
}

/** A value that belongs to a flow of calls, across `await` too: AsyncLocalStorage, where the host has it. */
export interface Ambient<T extends object> {
  get(): T | undefined;
  /** Runs `body` with the value set; what it awaits sees it too. */
  run<R>(value: T | undefined, body: () => R): R;
  /** Sets the value for the rest of this flow of calls. */
  set(value: T | undefined): void;
}

export interface Platform {
  ambient<T extends object>(): Ambient<T>;
  /** How many threads the host suggests. */
  readonly parallelism: number;
  /** Why that is one, where more could run but are not allowed. */
  readonly oneThread?: string | undefined;
  /** Whether the main thread may sleep in Atomics.wait. */
  readonly mayBlock: boolean;
  /** Runs `body`, the source of a self-contained function, in a worker, with `data` as its argument. */
  spawn(body: string, data: object): WorkerHandle;
  /** Loads the addon of the CUDA backend. Never throws. */
  loadAddon(): AddonFound;
}
