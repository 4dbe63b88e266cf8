/**
 * Devices of one process that exchange as NCCL's do. What a rank enqueues runs later, on two streams: the backend's, and that
 * of what ranks exchange. Whoever runs them chooses the order, as far as `begin` and `end` and other ranks allow it.
 */
import type { Backend } from "../../../../src/backends/backend.js";
import type { OpArgs, OpName } from "../../../../src/backends/ops.js";
import { retain } from "../../../../src/distributed/loopback/retain.js";
import type { Memory } from "../../../../src/tensor/storage.js";
import { PassingBackend } from "../../../operations/passing.js";

/** Something enqueued: it runs as soon as it is ready. */
interface Task {
  readonly ready?: () => boolean;
  readonly run?: () => void;
}

/** Tasks in order. */
export class Stream {
  readonly #tasks: Task[] = [];
  #enqueued = 0;
  #done = 0;

  push(task: Task): void {
    this.#tasks.push(task);
    this.#enqueued++;
  }

  /** Waits for what is enqueued on the other stream by now. */
  awaits(other: Stream): void {
    const mark = other.#enqueued;
    this.push({ ready: () => other.#done >= mark });
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

/** Runs all that is enqueued on `inner` later, in the order of a stream. */
export class QueueingBackend extends PassingBackend {
  /** What ranks exchange. */
  readonly exchanges = new Stream();
  /** What the backend runs. */
  readonly stream: Stream;

  constructor(inner: Backend) {
    const stream = new Stream();
    super(inner, ({ memory }) => queueing(memory, stream));
    this.stream = stream;
  }

  override run<K extends OpName>(op: K, args: OpArgs[K]): void {
    const held = retain(args);
    const run = (): void => {
      this.inner.run(op, held.args);
      held.release();
    };
    this.stream.push({ run });
  }
}

function queueing(memory: Memory, stream: Stream): Memory {
  return {
    allocate: (bytes) => memory.allocate(bytes),
    free: (address) => stream.push({ run: () => memory.free(address) }),
    write(address, bytes) {
      const own = bytes.slice();
      stream.push({ run: () => memory.write(address, own) });
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

/** Steps streams that are ready, chosen by `turns`, until none is. Returns whether any was. */
function runStreams(backends: readonly QueueingBackend[], turns: () => number): boolean {
  const streams = backends.flatMap(({ stream, exchanges }) => [stream, exchanges]);
  let moved = false;
  for (;;) {
    const ready = streams.filter(({ isReady }) => isReady);
    if (ready.length === 0) return moved;
    ready[turns() % ready.length]?.step();
    moved = true;
  }
}

/** What `given` resolves to, while the streams run. Throws where they stop before. */
export async function whileStreamsRun<T>(
  backends: readonly QueueingBackend[],
  turns: () => number,
  given: Promise<T>,
): Promise<T> {
  let isDone = false;
  const done = given.finally(() => {
    isDone = true;
  });
  // it is awaited at the end, unless a stream throws before
  done.catch(() => undefined);
  for (let idle = 0; !isDone; ) {
    idle = runStreams(backends, turns) ? 0 : idle + 1;
    await new Promise(setImmediate);
    if (idle > 3 && !isDone) throw new Error("ranks wait for each other, and none goes on");
  }
  runStreams(backends, turns);
  if (backends.some(({ stream, exchanges }) => !stream.isEmpty || !exchanges.isEmpty))
    throw new Error("something was enqueued that never runs");
  return done;
}
