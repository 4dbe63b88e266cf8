/** The code that runs in a worker of the pool. */

/** The layout of a control block: `header` int32 values and, from byte 64 on, at most `maxArgs` float64 arguments. */
export const CONTROL = { bytes: 512, header: 5, maxArgs: 56 } as const;

export interface WorkerData {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  /** The byte offset of this worker's control block in the memory. */
  readonly control: number;
  /** The names of the exports, by index. */
  readonly names: readonly string[];
}

/**
 * Waits for jobs in the control block and runs them. The function is sent to the worker as source text, so it must not refer to
 * anything outside itself. It defines no inner functions, because a bundler that preserves names would wrap them in a helper
 * that is defined outside.
 *
 * The int32 values of the header are:
 * - [0] the number of the last job given; job numbers wrap around,
 * - [1] the number of the job that the worker waits for next,
 * - [2] the index of the export to call, or -1 to exit,
 * - [3] the number of arguments before a job; after a job, 1 if it trapped, else 0,
 * - [4] 1 once this function has ended.
 *
 * The float64 values from byte 64 on are the arguments. After a job, the first of them is its result.
 */
export function serve({ module, memory, control, names }: WorkerData): void {
  const instance = new WebAssembly.Instance(module, {
    // abort may do anything, because the module traps after calling it
    env: { memory, abort: Object },
  });
  const header = new Int32Array(memory.buffer, control, 5);
  const args = new Float64Array(memory.buffer, control + 64, 56);
  const jobs = instance.exports as Record<string, (...args: number[]) => number>;
  try {
    for (let done = Atomics.load(header, 1); ; done = (done + 1) | 0) {
      Atomics.store(header, 1, (done + 1) | 0);
      Atomics.notify(header, 1);
      // a notification may arrive late, for an earlier job; only the job number tells whether there is a new job
      while (Atomics.load(header, 0) === done) Atomics.wait(header, 0, done);
      const index = Atomics.load(header, 2);
      if (index < 0) return;
      try {
        args[0] = jobs[names[index] as string]!(...args.subarray(0, header[3]));
        header[3] = 0;
      } catch {
        header[3] = 1;
      }
    }
  } finally {
    // the main thread of a page receives no events while it waits, so it learns only from this value that the worker has ended
    Atomics.store(header, 4, 1);
    Atomics.notify(header, 1);
  }
}
