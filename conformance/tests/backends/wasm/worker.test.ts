/** A pool thread does each job once, however often it wakes: a notification may arrive after its job is done. */
import { afterEach, expect, it } from "vitest";
import { platform } from "#platform";
import { CALLS, TASK_BYTES } from "#reference";
import type { WorkerHandle } from "../../../../src/backends/platform/platform.js";
import { taskMemory } from "../../../../src/backends/wasm/call.js";
import { Heap } from "../../../../src/backends/wasm/heap.js";
import { openInstance } from "../../../../src/backends/wasm/instance.js";
import { CONTROL, serve } from "../../../../src/backends/wasm/worker.js";
import { WIDE } from "../../../../src/formats/contract.gen.js";

const JOBS = 50;

let worker: WorkerHandle | undefined;
afterEach(() => worker?.terminate());

/** Lets other threads run. */
const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

it("a worker runs a job once, even if it is woken again after the job", { timeout: 30_000 }, async () => {
  const instance = await openInstance();
  const { module, memory, exports } = instance;
  const heap = new Heap(instance);
  const [control, total, threadCount, address] = [CONTROL.bytes, 4, 4, TASK_BYTES].map((bytes) =>
    heap.allocate(bytes),
  ) as [number, number, number, number];
  const task = taskMemory(memory, address);
  const sum = { x: total, xType: WIDE.f32, y: threadCount, yType: WIDE.f32, out: total, outType: WIDE.f32 };
  CALLS.add.write(task, sum);
  new Uint8Array(memory.buffer, control, CONTROL.bytes).fill(0);
  const names = Object.keys(exports);
  const header = new Int32Array(memory.buffer, control, 4);
  const args = new Float64Array(memory.buffer, control + 64, CONTROL.maxArgs);
  const value = (offset: number): Float32Array => new Float32Array(memory.buffer, offset, 1);
  value(total)[0] = 0;
  value(threadCount)[0] = 1;
  worker = platform.spawn(serve.toString(), { module, memory, control, names });
  // the worker ends together with the test
  worker.failed.catch(() => undefined);
  const jobsDone = (): number => Atomics.load(header, 1);
  /**
   * Waits until the worker sleeps with all of `jobs` done, then wakes it. A worker that counted another job would not
   * sleep.
   */
  const wakeLate = async (jobs: number): Promise<void> => {
    while (Atomics.notify(header, 0) === 0 && jobsDone() <= jobs + 1) await pause();
  };
  while (jobsDone() < 1) await pause();
  for (let job = 1; job <= JOBS; job++) {
    await wakeLate(job - 1);
    const call = CALLS.add.order(task, sum, 0, 0, 1).map(Number);
    args.set(call);
    header[2] = names.indexOf("add");
    header[3] = call.length;
    Atomics.store(header, 0, job);
    // the worker may have seen the new job number without this notification
    Atomics.notify(header, 0);
    while (jobsDone() <= job) await pause();
    await wakeLate(job);
    await wakeLate(job);
    expect({ done: jobsDone(), total: value(total)[0], trapped: header[3] }).toEqual({
      done: job + 1,
      total: job,
      trapped: 0,
    });
  }
});
