/**
 * A pool of threads that share one memory. A job is an export with arguments and a range of work; the range is divided among
 * threads.
 */
import { CALLS, type Exports, type NamedArguments, TASK_BYTES, type TaskMemory } from "#reference";
import { BackendError, messageOf, OutOfMemoryError } from "../../errors.js";
import { type Exactly, type ExportArgs, type Immediate, type Positional, taskMemory } from "./call.js";
import type { Heap } from "./heap.js";
import type { ExportName, Instance } from "./instance.js";
import { give, join, leave, ready, startThread, type Thread } from "./thread.js";
import { CONTROL } from "./worker.js";

/** The size of the scratch memory that each thread keeps. A job that needs more gets an additional allocation. */
const SCRATCH_BYTES = 1 << 20;

/** The minimum amount of work per thread, in elements or multiply-adds. For less, waking a thread costs more than it saves. */
const MIN_WORK_PER_THREAD = 1 << 17;

/**
 * A job: `total` units of work, which are divided in multiples of `grain`. A unit costs about as much as copying `weight`
 * elements.
 */
export interface Job {
  readonly total: number;
  /** The start of the range. Default 0. */
  readonly first?: number;
  readonly grain?: number;
  readonly weight?: number;
  /** The bytes of scratch memory per part. Default `SCRATCH_BYTES`. */
  readonly scratch?: number;
}

/** Runs jobs by dividing their range into contiguous parts. The result of every kernel is independent of the division. */
export class Pool {
  readonly #exports: Exports;
  readonly #names: readonly string[];
  readonly #threads: Thread[] = [];
  readonly #dropped: Promise<void>[] = [];
  readonly #heap: Heap;
  /** The scratch memory of each thread. Index 0 is the calling thread. */
  readonly #scratch: number[] = [];
  /** The addresses of the task and of the control blocks of threads. */
  readonly #controls: number[] = [];
  /** The memory of the current call's task, which all threads read. */
  readonly #task: TaskMemory;
  #broken: BackendError | undefined;

  private constructor(instance: Instance, heap: Heap) {
    this.#exports = instance.exports;
    this.#names = Object.keys(instance.exports);
    this.#heap = heap;
    const address = heap.reserve(TASK_BYTES);
    this.#controls.push(address);
    this.#task = taskMemory(instance.memory, address);
  }

  /**
   * Starts `threads - 1` workers and waits until they are ready. Throws `BackendError` if a worker cannot be started,
   * `OutOfMemoryError` if memory for it is not available. In both cases no worker is left running.
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
      const why = messageOf(cause);
      throw new BackendError(
        `wasm: a thread could not be started: ${why || "no reason was given"}; allow workers (in a page: from blob: URLs), or give threads: 1`,
        { cause },
      );
    }
  }

  get size(): number {
    return this.#threads.length + 1;
  }

  /** Throws the error of an earlier job during which a worker ended. No further work is reliable after that. */
  check(): void {
    if (this.#broken) throw this.#broken;
  }

  /** Removes a worker that ended unexpectedly, so that it gets no more jobs. */
  #drop(thread: Thread): void {
    if (thread.closed) return;
    thread.closed = true;
    this.#threads.splice(this.#threads.indexOf(thread), 1);
    this.#dropped.push(thread.worker.terminate());
  }

  #start(instance: Instance): void {
    const control = this.#heap.reserve(CONTROL.bytes);
    this.#controls.push(control);
    const thread = startThread(instance, control, this.#names);
    this.#threads.push(thread);
    thread.worker.failed.catch(() => this.#drop(thread));
  }

  /**
   * Calls an export over the range [first, first + total) and returns the result of each part. If the work is large enough, the
   * range is divided into parts, one per thread. The fields of the export's task are written to memory once. Each part receives
   * the address of the task, the other arguments, the scratch memory of its thread and its range. Throws `OutOfMemoryError` if
   * there is no scratch memory for even one part, `BackendError` if a part traps. When it throws, no part is still running. If a
   * worker ends during the job, this and all later calls throw the same `BackendError`.
   */
  run<K extends ExportName, A extends ExportArgs<K>>(
    name: K,
    job: Job,
    args: A & Exactly<A, ExportArgs<K>>,
  ): number[] {
    return this.#run(name, job, args);
  }

  /** Calls an export once, on the calling thread. Throws `BackendError` as `run` does. */
  call<K extends Immediate, A extends ExportArgs<K>>(name: K, args: A & Exactly<A, ExportArgs<K>>): number {
    this.check();
    const { write, order } = CALLS[name];
    write(this.#task, args);
    return this.#call(name, order(this.#task, args, 0, 0, 0));
  }

  #run(name: ExportName, job: Job, args: NamedArguments): number[] {
    this.check();
    const { first = 0, total, grain = 1, weight = 1, scratch = SCRATCH_BYTES } = job;
    if (total <= 0) return [];
    const units = Math.ceil(total / grain);
    const usefulParts = Math.max(
      1,
      Math.min(this.size, units, Math.floor((total * weight) / MIN_WORK_PER_THREAD)),
    );
    const scratchAddresses = this.#reserve(usefulParts, scratch);
    try {
      const edge = (part: number): number =>
        first + Math.min(total, Math.floor((units * part) / scratchAddresses.length) * grain);
      const { write, order } = CALLS[name];
      write(this.#task, args);
      return this.#share(
        name,
        scratchAddresses.map((address, part) => order(this.#task, args, address, edge(part), edge(part + 1))),
      );
    } finally {
      if (scratch > SCRATCH_BYTES) for (const address of scratchAddresses) this.#heap.release(address);
    }
  }

  /** Reserves scratch memory for up to `parts` parts. If memory is short, it reserves for fewer, but at least one. */
  #reserve(parts: number, bytes: number): number[] {
    const scratchAddresses: number[] = [];
    try {
      for (let part = 0; part < parts; part++) scratchAddresses.push(this.#scratchFor(part, bytes));
    } catch (error) {
      if (scratchAddresses.length === 0) throw error;
    }
    return scratchAddresses;
  }

  #scratchFor(part: number, bytes: number): number {
    if (bytes > SCRATCH_BYTES) return this.#heap.reserve(bytes);
    this.#scratch[part] ??= this.#heap.reserve(SCRATCH_BYTES);
    return this.#scratch[part];
  }

  /**
   * Runs part 0 on the calling thread and the other parts on workers, waits for all parts, and then throws the first error, if
   * any.
   */
  #share(name: ExportName, calls: readonly Positional[]): number[] {
    const helpers = this.#threads.slice(0, calls.length - 1);
    helpers.forEach((thread, i) => {
      this.#give(thread, name, calls[i + 1] as Positional);
    });
    const failures: unknown[] = [];
    const results = calls.map((args, part) => {
      try {
        return part === 0 ? this.#call(name, args) : this.#join(helpers[part - 1] as Thread, name);
      } catch (error) {
        failures.push(error);
        return Number.NaN;
      }
    });
    this.check();
    if (failures.length > 0) throw failures[0];
    return results;
  }

  #join(thread: Thread, name: string): number {
    const result = join(thread, name);
    if (result !== undefined) return result;
    const worker = `worker ${this.#threads.indexOf(thread) + 1} of ${this.#threads.length}`;
    this.#broken ??= new BackendError(
      `wasm: ${worker} ended before its part of ${name} was done, so what the call wrote is incomplete; this backend's tensors can still be read: dispose of it and open another`,
    );
    throw this.#broken;
  }

  #call(name: ExportName, args: Positional): number {
    try {
      return (this.#exports[name] as (...args: Positional) => number)(...args);
    } catch (cause) {
      throw new BackendError(`wasm: ${name} trapped`, { cause });
    }
  }

  #give(thread: Thread, name: string, args: Positional): void {
    if (args.length > CONTROL.maxArgs) throw new BackendError(`wasm: ${name} takes too many arguments`);
    give(thread, this.#names.indexOf(name), args);
  }

  /** Tells the workers to exit and waits until they have ended. */
  async close(): Promise<void> {
    for (const thread of this.#threads) leave(thread);
    await Promise.all([...this.#dropped, ...this.#threads.map(({ worker }) => worker.terminate())]);
    for (const address of [...this.#scratch, ...this.#controls]) this.#heap.release(address);
    for (const each of [this.#threads, this.#dropped, this.#scratch, this.#controls]) each.length = 0;
  }
}
