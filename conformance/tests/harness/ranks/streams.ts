/**
 * Simulated devices in one process. A rank's work is enqueued on two streams: the backend's stream and the stream of exchanges.
 * The test chooses the order in which streams run, within the limits of `begin`, `end` and other ranks.
 */

import type { Backend } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { runOn } from "../../../../src/backends/run.js";
import { retain } from "../../../../src/collectives/loopback/retain.js";
import type { Memory } from "../../../../src/tensor/storage.js";
import { PassingBackend } from "../../../operations/passing.js";

/** An enqueued task, which runs when it is ready. */
interface Task {
  readonly ready?: () => boolean;
  readonly run?: () => void;
}

/** Tasks that run in order. */
export class Stream {
  readonly #tasks: Task[] = [];
  #enqueued = 0;
  #done = 0;

  push(task: Task): void {
    this.#tasks.push(task);
    this.#enqueued++;
  }

  /** Waits for the tasks enqueued on the other stream so far. */
  awaits(stream: Stream): void {
    const target = stream.#enqueued;
    this.push({ ready: () => stream.#done >= target });
  }

  get isReady(): boolean {
    const [head] = this.#tasks;
    return head !== undefined && (head.ready?.() ?? true);
  }

  get isEmpty(): boolean {
    return this.#tasks.length === 0;
  }

  step(): void {
    this.#tasks.shift()?.run?.();
    this.#done++;
  }
}

/** A backend that enqueues all work on a stream and later runs it on `inner`. */
export class QueueingBackend extends PassingBackend {
  /** The stream of exchanges between ranks. */
  readonly exchanges = new Stream();
  /** The stream of the backend's operations. */
  readonly stream: Stream;

  constructor(inner: Backend) {
    const stream = new Stream();
    super(inner, ({ memory }) => queueMemory(memory, stream));
    this.stream = stream;
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    const retained = retain(args);
    const run = (): void => {
      runOn(this.inner, op, retained.args);
      retained.release();
    };
    this.stream.push({ run });
  }
}

function queueMemory(memory: Memory, stream: Stream): Memory {
  return {
    allocate: (bytes) => memory.allocate(bytes),
    free: (address) => stream.push({ run: () => memory.free(address) }),
    write(address, bytes) {
      const copy = bytes.slice();
      stream.push({ run: () => memory.write(address, copy) });
    },
    copy: (to, from, bytes) => stream.push({ run: () => memory.copy(to, from, bytes) }),
    read: (address, bytes) =>
      new Promise((resolve) => {
        stream.push({ run: () => resolve(memory.readSync(address, bytes)) });
      }),
    readSync() {
      throw new Error("a rank waits for a device before the others have enqueued anything");
    },
  };
}

/** Runs tasks of streams, which `choose` selects, until no stream can advance. Returns whether any stream advanced. */
function runStreams(backends: readonly QueueingBackend[], choose: () => number): boolean {
  const streams = backends.flatMap(({ stream, exchanges }) => [stream, exchanges]);
  let hasAdvanced = false;
  for (;;) {
    const ready = streams.filter(({ isReady }) => isReady);
    if (ready.length === 0) return hasAdvanced;
    ready[choose() % ready.length]?.step();
    hasAdvanced = true;
  }
}

/** Runs the streams until `promise` resolves, and returns its value. Throws if the streams stop earlier. */
export async function whileStreamsRun<T>(
  backends: readonly QueueingBackend[],
  choose: () => number,
  promise: Promise<T>,
): Promise<T> {
  let isDone = false;
  const completion = promise.finally(() => {
    isDone = true;
  });
  // awaited at the end, unless a stream throws earlier
  completion.catch(() => undefined);
  for (let idle = 0; !isDone; ) {
    idle = runStreams(backends, choose) ? 0 : idle + 1;
    await new Promise(setImmediate);
    if (idle > 3 && !isDone) throw new Error("ranks wait for each other, and none goes on");
  }
  runStreams(backends, choose);
  if (backends.some(({ stream, exchanges }) => !stream.isEmpty || !exchanges.isEmpty))
    throw new Error("something was enqueued that never runs");
  return completion;
}
