/** The few things that Node and browsers spell differently. */

/** A running worker. */
export interface WorkerHandle {
  /** Called once the worker runs. */
  detach(): void;
  terminate(): Promise<void>;
  /** Rejects when the worker breaks; never resolves. */
  readonly failed: Promise<never>;
}

export interface Platform {
  /** How many threads the host suggests. */
  readonly parallelism: number;
  /** Whether the main thread may sleep in Atomics.wait. */
  readonly mayBlock: boolean;
  /** Runs `body`, the source of a self-contained function, in a worker, with `data` as its argument. */
  spawn(body: string, data: object): WorkerHandle;
}
