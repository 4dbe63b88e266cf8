/** A worker of the pool, as the calling thread sees it. */
import { platform } from "#platform";
import { BackendError } from "../../errors.js";
import type { WorkerHandle } from "../platform/platform.js";
import type { Instance } from "./instance.js";
import { CONTROL, serve, type WorkerData } from "./worker.js";

/** The time limit for the start of a worker, in milliseconds. */
const START_MS = 60_000;

/** The interval at which a waiting caller checks that the worker is still running, in milliseconds. */
const PROBE_MS = 100;

export interface Thread {
  readonly header: Int32Array;
  readonly args: Float64Array;
  readonly worker: WorkerHandle;
  /** Whether the worker was told to exit. */
  closed: boolean;
}

/** Starts a worker whose control block is at the address `control`. */
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

/** Resolves when the worker has instantiated the module. Rejects if the worker fails before that or takes too long. */
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
  // a worker that was told to exit stays referenced until it has ended
  if (!thread.closed) thread.worker.detach();
}

/** Starts a job: the worker calls export number `index`. */
export function give(thread: Thread, index: number, args: readonly (number | boolean)[]): void {
  for (let i = 0; i < args.length; i++) thread.args[i] = Number(args[i]);
  thread.header[2] = index;
  thread.header[3] = args.length;
  wake(thread);
}

/** Tells the worker to exit. */
export function leave(thread: Thread): void {
  thread.closed = true;
  thread.header[2] = -1;
  wake(thread);
}

/**
 * Waits for the last job and returns its result, or undefined if the worker ended before it finished the job. Throws
 * `BackendError` if the job trapped.
 */
export function join(thread: Thread, name: string): number | undefined {
  const { header, args } = thread;
  const awaited = next(Atomics.load(header, 0));
  // A worker may finish its job and then end. Each iteration therefore tests the `ended` that was read before this iteration's
  // `done`. If the worker had ended by then and `done` still is not `awaited`, the worker will never finish the job.
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

/** Returns the next job number, an int32 that wraps around. */
function next(job: number): number {
  return (job + 1) | 0;
}

/** Wakes the worker for the job in its control block. */
function wake({ header }: Thread): void {
  Atomics.store(header, 0, next(Atomics.load(header, 0)));
  Atomics.notify(header, 0);
}
