/** A process's end of the thread that talks to the others: messages out, and messages in, for which it can sleep. */
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { BackendError, DistributedError } from "../../errors.js";
import type { Message as Heard } from "../call.js";
import {
  type Close,
  type Closed,
  type Data,
  type Failed,
  failed,
  type Made,
  type Message,
  type ThreadData,
  type Told,
} from "./messages.js";
import type { Place } from "./place.js";

/** What a rank waits for. */
export interface Awaited {
  readonly group: string;
  /** Ranks of the job. */
  readonly from: readonly number[];
  /** The call, as errors name it. */
  readonly operation: string;
  readonly text: string;
}

/** How long the thread may take to tell the others of a failure, or to end. */
const FAREWELL_MS = 2000;

export class Link {
  readonly #port: MessagePort;
  readonly #worker: Worker;
  readonly #signal = new SharedArrayBuffer(12);
  /** One element, which is 1 once the job has failed: for those who cannot hear messages. */
  readonly failed = new Int32Array(this.#signal, 4, 1);
  readonly #mail = new Map<string, Data[]>();
  readonly #left = new Set<number>();
  #failure: Failed | undefined;
  #told = false;
  /** How often others were asked whether they make a call too. */
  #noted = 0;
  readonly #ended: Promise<unknown>;
  readonly #said = new Set<"told" | "closed">();
  /** As the process ends, whoever ends it. */
  readonly #end = (): void => {
    this.#port.postMessage({ kind: "close" } satisfies Close);
    this.#sleepUntil("closed");
  };

  private constructor(readonly place: Place) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const workerData: ThreadData = { place, port: port2, signal: this.#signal };
    this.#worker = new Worker(new URL("./thread.js", import.meta.url), { workerData, transferList: [port2] });
    this.#ended = new Promise((resolve) => this.#worker.once("exit", resolve));
  }

  /** Throws `DistributedError` where the ranks do not find each other. */
  static async open(user: string, place: Place): Promise<Link> {
    const link = new Link(place);
    const failure = await new Promise<Failed | undefined>((resolve, reject) => {
      link.#worker.once("message", resolve);
      link.#worker.once("error", (cause) =>
        reject(
          new BackendError(`${user}: the thread that talks to other ranks broke: ${cause.message}`, {
            cause,
          }),
        ),
      );
    });
    if (failure) {
      await link.#ended;
      throw new DistributedError(failure.failure, user, failure.rank, failure.message);
    }
    process.once("exit", link.#end);
    // a process that ends without leaving ends: nothing waits for it
    link.#worker.unref();
    link.#port.unref();
    return link;
  }

  /** Throws where the job has failed, as far as is known without waiting. */
  requireWhole(operation: string): void {
    this.#hear();
    if (this.#failure) throw this.#error(operation);
  }

  post(message: Data): void {
    this.#port.postMessage(message, [message.bytes.buffer]);
  }

  /** A call that waits for others on the device: they are asked whether they make it too. */
  note(made: Made): void {
    this.#noted += made.flows.filter((flow) => flow !== undefined).length;
    this.#port.postMessage(made);
  }

  /** Sleeps until every other rank that a noted call concerns has made it too; throws as `requireWhole` does. */
  awaitNotes(operation: string): void {
    const count = new Int32Array(this.#signal);
    for (;;) {
      const seen = Atomics.load(count, 0);
      this.requireWhole(operation);
      if (Atomics.load(count, 2) === this.#noted) return;
      Atomics.wait(count, 0, seen);
    }
  }

  /** The next message of each. Sleeps until they are there, or throws what has come in between. */
  take({ group, from, operation, text }: Awaited): readonly Heard[] {
    const { rank, timeoutMs } = this.place;
    const deadline = performance.now() + timeoutMs;
    const count = new Int32Array(this.#signal);
    for (;;) {
      const seen = Atomics.load(count, 0);
      this.#hear();
      if (this.#failure) throw this.#error(operation);
      const missing = from.filter((each) => !this.#mail.get(`${group}:${each}`)?.length);
      if (missing.length === 0)
        return from.map((each) => this.#mail.get(`${group}:${each}`)?.shift() as Data);
      const gone = missing.find((each) => this.#left.has(each));
      if (gone !== undefined)
        this.fail(
          failed("lost", gone, `rank ${gone} has left the group, and rank ${rank} waits for it in ${text}`),
        );
      const rest = deadline - performance.now();
      if (rest <= 0) {
        const absent = missing.map((each) => `rank ${each}`).join(" and ");
        this.fail(
          failed(
            "deadline",
            missing[0],
            `${absent} did not come to ${text}, where rank ${rank} waited ${timeoutMs} ms`,
          ),
        );
      } else if (gone === undefined) Atomics.wait(count, 0, seen, rest);
    }
  }

  /** Ends the job on all ranks. */
  fail(failure: Failed): void {
    if (this.#failure) return;
    this.#failure = failure;
    Atomics.store(this.failed, 0, 1);
    this.#port.postMessage(failure);
    // the process may end as soon as it knows: the others are told first
    this.#sleepUntil("told");
  }

  /** Leaves in order. Gives what no call of this rank has thrown yet. */
  async close(): Promise<Error | undefined> {
    this.#hear();
    const untold = this.#failure && !this.#told ? this.#error("dispose") : undefined;
    this.#worker.ref();
    this.#port.postMessage({ kind: "left", rank: this.place.rank } satisfies Message);
    await this.#ended;
    process.off("exit", this.#end);
    return untold;
  }

  #error(operation: string): DistributedError {
    this.#told = true;
    const { failure, rank, message } = this.#failure as Failed;
    return new DistributedError(failure, operation, rank, message);
  }

  #hear(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#port) as
        | { readonly message: Message | Told | Closed }
        | undefined;
      if (!received) return;
      const { message } = received;
      if (message.kind === "told" || message.kind === "closed") this.#said.add(message.kind);
      else if (message.kind === "failed") this.#failure ??= message;
      else if (message.kind === "left") this.#left.add(message.rank);
      else if (message.kind === "data") this.#put(message);
    }
  }

  /** Sleeps until the thread has said it, but not for long. */
  #sleepUntil(kind: "told" | "closed"): void {
    const count = new Int32Array(this.#signal);
    const deadline = performance.now() + FAREWELL_MS;
    for (;;) {
      const seen = Atomics.load(count, 0);
      this.#hear();
      const rest = deadline - performance.now();
      if (this.#said.has(kind) || rest <= 0) return;
      Atomics.wait(count, 0, seen, rest);
    }
  }

  #put(message: Data): void {
    const key = `${message.group}:${message.from}`;
    const box = this.#mail.get(key) ?? [];
    box.push(message);
    this.#mail.set(key, box);
  }
}
