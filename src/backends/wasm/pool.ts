/** Threads over one memory: a job is an export, its arguments and a range that is split among them. */
import { platform } from "#platform";
import { BackendError, OutOfMemoryError } from "../../errors.js";
import type { WorkerHandle } from "../platform/platform.js";
import type { Heap } from "./heap.js";
import type { ExportName, Exports, Instance } from "./instance.js";
import { CONTROL, serve, type WorkerData } from "./worker.js";

/** Scratch that each thread keeps; what a job needs beyond it is reserved for that job. */
const SCRATCH_BYTES = 1 << 20;

/** Below this much work, in elements or multiply-adds, waking a thread costs more than it saves. */
const WORTH_SHARING = 1 << 17;

/** How long threads may take to start. */
const START_MS = 60_000;

interface Thread {
  readonly header: Int32Array;
  readonly args: Float64Array;
  readonly worker: WorkerHandle;
  /** It was told to leave. */
  closed: boolean;
}

/** A job: `total` units of work in multiples of `grain`, each costing about `weight` elements. */
export interface Job {
  readonly total: number;
  /** Where the range begins. Default 0. */
  readonly first?: number;
  readonly grain?: number;
  readonly weight?: number;
  /** Bytes of scratch each part needs, where `SCRATCH_BYTES` is too little. */
  readonly scratch?: number;
}

/** Partitions jobs by contiguous ranges. Every kernel's result is independent of the partition. */
export class Pool {
  readonly #exports: Exports;
  readonly #names: readonly string[];
  readonly #threads: Thread[] = [];
  readonly #dropped: Promise<void>[] = [];
  readonly #heap: Heap;
  /** What each thread keeps, this one's first. */
  readonly #scratch: number[] = [];
  readonly #controls: number[] = [];

  private constructor(instance: Instance, heap: Heap) {
    this.#exports = instance.exports;
    this.#names = Object.keys(instance.exports);
    this.#heap = heap;
  }

  /**
   * Starts `threads - 1` workers and waits until they are ready. Throws `BackendError` where one cannot start, and
   * `OutOfMemoryError`; no worker is left then.
   */
  static async open(instance: Instance, heap: Heap, threads: number): Promise<Pool> {
    const pool = new Pool(instance, heap);
    try {
      for (let i = 1; i < threads; i++) pool.#start(instance);
      await Promise.all(pool.#threads.map(ready));
      return pool;
    } catch (cause) {
      await pool.close();
      if (cause instanceof OutOfMemoryError) throw cause;
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new BackendError(
        `wasm: a thread could not be started: ${why || "no reason was given"}; allow workers (in a page: from blob: URLs), or give threads: 1`,
        { cause },
      );
    }
  }

  get size(): number {
    return this.#threads.length + 1;
  }

  /** A worker that ended without being told to gets no further jobs. */
  #drop(thread: Thread): void {
    if (thread.closed) return;
    thread.closed = true;
    this.#threads.splice(this.#threads.indexOf(thread), 1);
    this.#dropped.push(thread.worker.terminate());
  }

  #start({ module, memory }: Instance): void {
    const control = this.#heap.reserve(CONTROL.bytes);
    this.#controls.push(control);
    new Uint8Array(memory.buffer, control, CONTROL.bytes).fill(0);
    const data: WorkerData = { module, memory, control, names: this.#names };
    const thread = {
      header: new Int32Array(memory.buffer, control, 4),
      args: new Float64Array(memory.buffer, control + 64, CONTROL.maxArgs),
      worker: platform.spawn(serve.toString(), data),
      closed: false,
    };
    this.#threads.push(thread);
    thread.worker.failed.catch(() => this.#drop(thread));
  }

  /**
   * Calls `exports[name](...args, begin, end)` over [first, first + total) in as many parts as pay, and returns what
   * each part returned. `argsFor` is given the scratch of the thread that will run the part. Throws
   * `OutOfMemoryError` where not even one part can have its scratch; when it throws, no part still runs.
   */
  run(name: ExportName, job: Job, argsFor: (scratch: number) => readonly number[]): number[] {
    const { first = 0, total, grain = 1, weight = 1, scratch = SCRATCH_BYTES } = job;
    if (total <= 0) return [];
    const units = Math.ceil(total / grain);
    const worth = Math.max(1, Math.min(this.size, units, Math.floor((total * weight) / WORTH_SHARING)));
    const places = this.#reserve(worth, scratch);
    try {
      const edge = (part: number): number =>
        first + Math.min(total, Math.floor((units * part) / places.length) * grain);
      return this.#share(
        name,
        places.map((place, part) => [...argsFor(place), edge(part), edge(part + 1)]),
      );
    } finally {
      if (scratch > SCRATCH_BYTES) for (const place of places) this.#heap.release(place);
    }
  }

  /** Scratch for `parts` parts; where memory is short for fewer, but for one. */
  #reserve(parts: number, bytes: number): number[] {
    const places: number[] = [];
    try {
      for (let part = 0; part < parts; part++) places.push(this.#place(part, bytes));
    } catch (error) {
      if (places.length === 0) throw error;
    }
    return places;
  }

  #place(part: number, bytes: number): number {
    if (bytes > SCRATCH_BYTES) return this.#heap.reserve(bytes);
    this.#scratch[part] ??= this.#heap.reserve(SCRATCH_BYTES);
    return this.#scratch[part];
  }

  /** Makes call 0 on this thread and each other on a helper, waits for all, then throws what failed first. */
  #share(name: ExportName, calls: readonly (readonly number[])[]): number[] {
    calls.slice(1).forEach((args, i) => {
      this.#give(this.#threads[i] as Thread, name, args);
    });
    const failures: unknown[] = [];
    const results = calls.map((args, part) => {
      try {
        return part === 0 ? this.#call(name, args) : join(this.#threads[part - 1] as Thread, name);
      } catch (error) {
        failures.push(error);
        return Number.NaN;
      }
    });
    if (failures.length > 0) throw failures[0];
    return results;
  }

  #call(name: ExportName, args: readonly number[]): number {
    try {
      return (this.#exports[name] as (...args: readonly number[]) => number)(...args);
    } catch (cause) {
      throw new BackendError(`wasm: ${name} trapped`, { cause });
    }
  }

  #give(thread: Thread, name: string, args: readonly number[]): void {
    if (args.length > CONTROL.maxArgs) throw new BackendError(`wasm: ${name} takes too many arguments`);
    thread.args.set(args);
    thread.header[2] = this.#names.indexOf(name);
    thread.header[3] = args.length;
    wake(thread);
  }

  /** Lets the workers leave and waits until they have. */
  async close(): Promise<void> {
    for (const thread of this.#threads) {
      thread.closed = true;
      thread.header[2] = -1;
      wake(thread);
    }
    await Promise.all([...this.#dropped, ...this.#threads.map(({ worker }) => worker.terminate())]);
    for (const address of [...this.#scratch, ...this.#controls]) this.#heap.release(address);
    for (const each of [this.#threads, this.#dropped, this.#scratch, this.#controls]) each.length = 0;
  }
}

/** Resolves when the worker has instantiated the module; throws where it breaks before, or takes too long. */
async function ready(thread: Thread): Promise<void> {
  const last = performance.now() + START_MS;
  const poll = async (): Promise<void> => {
    while (Atomics.load(thread.header, 1) < 1) {
      if (thread.closed) return;
      if (performance.now() > last) throw new Error(`it did not start within ${START_MS / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  await Promise.race([poll(), thread.worker.failed]);
  // one that is being ended is waited for
  if (!thread.closed) thread.worker.detach();
}

/** The number that follows: numbers of jobs are int32, and a run may have more jobs than there are. */
function next(job: number): number {
  return (job + 1) | 0;
}

/** Gives the thread the job that its control block describes. */
function wake({ header }: Thread): void {
  Atomics.store(header, 0, next(Atomics.load(header, 0)));
  Atomics.notify(header, 0);
}

function join(thread: Thread, name: string): number {
  const awaited = next(Atomics.load(thread.header, 0));
  for (;;) {
    const done = Atomics.load(thread.header, 1);
    if (done === awaited) break;
    if (platform.mayBlock) Atomics.wait(thread.header, 1, done);
  }
  if (thread.header[3] !== 0) throw new BackendError(`wasm: ${name} trapped in a worker`);
  return thread.args[0] as number;
}
