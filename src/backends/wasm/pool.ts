/** Threads over one memory: a job is an export, its arguments and a range that is split among them. */
import { platform } from "#platform";
import { BackendError } from "../../errors.js";
import type { WorkerHandle } from "../platform/platform.js";
import type { ExportName, Exports, Instance } from "./instance.js";
import { CONTROL, serve, type WorkerData } from "./worker.js";

/** Scratch each thread starts with; kernels are told where theirs lies. */
const SCRATCH_BYTES = 1 << 20;

/** Below this much work, in elements or multiply-adds, waking a thread costs more than it saves. */
const WORTH_SHARING = 1 << 17;

/** Memory of one thread's own, as large as the largest job has asked for. */
class Scratch {
  #address = 0;
  #bytes = 0;

  constructor(readonly exports: Exports) {}

  /** The address of at least `bytes` bytes. */
  ofSize(bytes: number): number {
    if (bytes > this.#bytes) {
      this.release();
      this.#address = this.exports.reserve(bytes) >>> 0;
      this.#bytes = bytes;
    }
    return this.#address;
  }

  release(): void {
    if (this.#bytes > 0) this.exports.release(this.#address);
    this.#bytes = 0;
  }
}

interface Thread {
  readonly header: Int32Array;
  readonly args: Float64Array;
  readonly scratch: Scratch;
  readonly worker: WorkerHandle;
  jobs: number;
}

/** A job: `total` units of work in multiples of `grain`, each costing about `weight` elements. */
export interface Job {
  readonly total: number;
  /** Where the range begins. Default 0. */
  readonly first?: number;
  readonly grain?: number;
  readonly weight?: number;
  /** Bytes of scratch each part needs, where 1 MiB is too little. */
  readonly scratch?: number;
}

/** Partitions jobs by contiguous ranges. Every kernel's result is independent of the partition. */
export class Pool {
  readonly #exports: Exports;
  readonly #names: readonly string[];
  readonly #threads: Thread[] = [];
  readonly #scratch: Scratch;
  readonly #controls: number[] = [];

  private constructor(instance: Instance) {
    this.#exports = instance.exports;
    this.#names = Object.keys(instance.exports);
    this.#scratch = new Scratch(instance.exports);
  }

  /** Starts `threads - 1` workers and waits until they are ready. */
  static async open(instance: Instance, threads: number): Promise<Pool> {
    const pool = new Pool(instance);
    for (let i = 1; i < threads; i++) pool.#threads.push(pool.#start(instance));
    await Promise.all(pool.#threads.map(ready));
    return pool;
  }

  get size(): number {
    return this.#threads.length + 1;
  }

  #start({ module, memory, exports }: Instance): Thread {
    const control = exports.reserve(CONTROL.bytes) >>> 0;
    this.#controls.push(control);
    new Uint8Array(memory.buffer, control, CONTROL.bytes).fill(0);
    const data: WorkerData = { module, memory, control, names: this.#names };
    return {
      header: new Int32Array(memory.buffer, control, 4),
      args: new Float64Array(memory.buffer, control + 64, CONTROL.maxArgs),
      scratch: new Scratch(exports),
      worker: platform.spawn(serve.toString(), data),
      jobs: 1,
    };
  }

  /**
   * Calls `exports[name](...args, begin, end)` over [first, first + total) in as many parts as pay, and returns what
   * each part returned. `argsFor` is given the scratch of the thread that will run the part.
   */
  run(name: ExportName, job: Job, argsFor: (scratch: number) => readonly number[]): number[] {
    const { first = 0, total, grain = 1, weight = 1, scratch = SCRATCH_BYTES } = job;
    if (total <= 0) return [];
    const units = Math.ceil(total / grain);
    const parts = Math.max(1, Math.min(this.size, units, Math.floor((total * weight) / WORTH_SHARING)));
    const edge = (part: number): number =>
      first + Math.min(total, Math.floor((units * part) / parts) * grain);
    const helpers = this.#threads.slice(0, parts - 1);
    helpers.forEach((thread, i) => {
      this.#give(thread, name, [...argsFor(thread.scratch.ofSize(scratch)), edge(i + 1), edge(i + 2)]);
    });
    const call = this.#exports[name] as (...args: number[]) => number;
    const own = call(...argsFor(this.#scratch.ofSize(scratch)), edge(0), edge(1));
    return [own, ...helpers.map((thread) => join(thread, name))];
  }

  #give(thread: Thread, name: string, args: readonly number[]): void {
    if (args.length > CONTROL.maxArgs) throw new BackendError(`wasm: ${name} takes too many arguments`);
    thread.args.set(args);
    thread.header[2] = this.#names.indexOf(name);
    thread.header[3] = args.length;
    Atomics.store(thread.header, 0, thread.jobs);
    Atomics.notify(thread.header, 0);
    thread.jobs++;
  }

  /** Lets the workers leave and waits until they have. */
  async close(): Promise<void> {
    for (const thread of this.#threads) {
      thread.header[2] = -1;
      Atomics.store(thread.header, 0, thread.jobs);
      Atomics.notify(thread.header, 0);
    }
    await Promise.all(this.#threads.map((thread) => thread.worker.terminate()));
    for (const scratch of [this.#scratch, ...this.#threads.map((thread) => thread.scratch)])
      scratch.release();
    for (const control of this.#controls) this.#exports.release(control);
    this.#threads.length = 0;
  }
}

/** Resolves when the worker has instantiated the module. */
async function ready(thread: Thread): Promise<void> {
  const poll = async (): Promise<void> => {
    while (Atomics.load(thread.header, 1) < 1) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  await Promise.race([poll(), thread.worker.failed]);
  thread.worker.detach();
}

function join(thread: Thread, name: string): number {
  for (;;) {
    const done = Atomics.load(thread.header, 1);
    if (done === thread.jobs) break;
    if (platform.mayBlock) Atomics.wait(thread.header, 1, done);
  }
  if (thread.header[3] !== 0) throw new BackendError(`wasm: ${name} trapped in a worker`);
  return thread.args[0] as number;
}
