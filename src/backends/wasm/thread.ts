/** A worker of the pool, as seen by the thread that gives it jobs. */
import { platform } from "#platform";
import { BackendError } from "../../errors.js";
import type { WorkerHandle } from "../platform/platform.js";
import type { Instance } from "./instance.js";
import { CONTROL, serve, type WorkerData } from "./worker.js";

/** The time limit for a worker to start. */
const START_MS = 60_000;

/** How long a caller sleeps between checks that the worker is still running. */
const PROBE_MS = 100;

export interface Thread {
  readonly header: Int32Array;
  readonly args: Float64Array;
  readonly worker: WorkerHandle;
  /** Whether it was told to exit. */
  closed: boolean;
}

/** Starts a worker with the control block at that address. */
export function startThread({ module, memory }: Instance, control: number, names: readonly string[]): Thread {
  new Uint8Array(memory.buffer, control, CONTROL.bytes).fill(0);
  const data: WorkerData = { module, memory, control, names };
  return {
    header: new Int32Array(memory.buffer, control, CONTROL.header),
    args: new Float64Array(memory.buffer, control + 64, CONTROL.maxArgs),
    worker: platform.spawn(serve.toString(), data),
    closed: false,
  };
}

/** Resolves when the worker has instantiated the module; rejects if it fails before that, or takes too long. */
export async function ready(thread: Thread): Promise<void> {
  const last = performance.now() + START_MS;
  const poll = async (): Promise<void> => {
    while (Atomics.load(thread.header, 1) < 1 || thread.worker.state() === "unknown") {
      if (thread.closed) return;
      if (performance.now() > last) throw new Error(`it did not start within ${START_MS / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await Promise.race([poll(), thread.worker.failed]);
  // a worker that was told to exit stays referenced until it has
  if (!thread.closed) thread.worker.detach();
}

/** Starts a job: the thread calls export number `index`. */
export function give(thread: Thread, index: number, args: readonly (number | boolean)[]): void {
  for (let i = 0; i < args.length; i++) thread.args[i] = Number(args[i]);
  thread.header[2] = index;
  thread.header[3] = args.length;
  wake(thread);
}

/** Tells the worker to return. */
export function leave(thread: Thread): void {
  thread.closed = true;
  thread.header[2] = -1;
  wake(thread);
}

/**
 * Waits for the last job and returns its result; undefined if the worker ended before finishing it. Throws `BackendError` if
 * the job trapped.
 */
export function join(thread: Thread, name: string): number | undefined {
  const { header, args } = thread;
  const awaited = next(Atomics.load(header, 0));
  // a worker may finish its job and then end, so its end is read before its last job number
  let ended = false;
  for (;;) {
    const done = Atomics.load(header, 1);
    if (done === awaited) break;
    if (ended) return undefined;
    const asleep = platform.mayBlock ? Atomics.wait(header, 1, done, PROBE_MS) : "not-equal";
    ended = Atomics.load(header, 4) !== 0 || (asleep === "timed-out" && thread.worker.state() === "ended");
  }
  if (header[3] !== 0) throw new BackendError(`wasm: ${name} trapped in a worker`);
  return args[0] as number;
}

/** The next job number, an int32 that wraps. */
function next(job: number): number {
  return (job + 1) | 0;
}

/** Wakes the thread for the job in its control block. */
function wake({ header }: Thread): void {
  Atomics.store(header, 0, next(Atomics.load(header, 0)));
  Atomics.notify(header, 0);
}
