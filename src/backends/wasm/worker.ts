/** The code of a pool worker. */

/** The layout of a control block: `header` int32 values, then from byte 64 the arguments as float64. */
export const CONTROL = { bytes: 512, header: 5, maxArgs: 56 } as const;

export interface WorkerData {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  /** Byte offset of this worker's control block. */
  readonly control: number;
  /** The names of the exports, by index. */
  readonly names: readonly string[];
}

/**
 * Waits for jobs in the control block and runs them. It is sent to the worker as source text, so it must not refer to anything
 * outside itself. It defines no inner functions: a bundler that preserves names would wrap them in a helper defined outside.
 *
 * int32 [0] number of the last job given, [1] number of the job waited for; both wrap; [2] export index (-1: exit), [3]
 * argument count in, 1 out if the job trapped, [4] 1 as soon as this returns or throws; float64 from byte 64 on: the arguments,
 * the first also the result.
 */
export function serve({ module, memory, control, names }: WorkerData): void {
  const instance = new WebAssembly.Instance(module, {
    // abort may do anything: the module traps after calling it
    env: { memory, abort: Object },
  });
  const header = new Int32Array(memory.buffer, control, 5);
  const args = new Float64Array(memory.buffer, control + 64, 56);
  const jobs = instance.exports as Record<string, (...args: number[]) => number>;
  try {
    for (let done = Atomics.load(header, 1); ; done = (done + 1) | 0) {
      Atomics.store(header, 1, (done + 1) | 0);
      Atomics.notify(header, 1);
      // a notification may arrive late, for an earlier job; only the number tells whether there is a new one
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
    // a waiting thread may not notice the end otherwise: a page's main thread gets no event while it waits
    Atomics.store(header, 4, 1);
    Atomics.notify(header, 1);
  }
}
