/**
 * The main thread's interface to the messaging thread, which talks to the other processes. The main thread can sleep until a
 * message arrives.
 */
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

/** The messages that a rank waits for. */
export interface Awaited {
  readonly group: string;
  /** The ranks that send them, as numbered in the job. */
  readonly from: readonly number[];
  /** The call as error messages name it. */
  readonly operation: string;
  readonly text: string;
}

/** How long the main thread waits for the messaging thread to report a failure to the other ranks, or to end, in milliseconds. */
const FAREWELL_MS = 2000;

export class Link {
  readonly #port: MessagePort;
  readonly #worker: Worker;
  readonly #signal = new SharedArrayBuffer(12);
  /** An array of one element, 1 if the job has failed. Native code that cannot receive messages reads it. */
  readonly failed = new Int32Array(this.#signal, 4, 1);
  readonly #mail = new Map<string, Data[]>();
  readonly #left = new Set<number>();
  #failure: Failed | undefined;
  #isThrown = false;
  /** The number of notes that were sent to other ranks. */
  #noted = 0;
  readonly #ended: Promise<unknown>;
  readonly #said = new Set<"told" | "closed">();
  /** Ends the messaging thread when the process exits. */
  readonly #end = (): void => {
    this.#port.postMessage({ kind: "close" } satisfies Close);
    this.#sleepUntil("closed");
  };

  private constructor(readonly place: Place) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const workerData: ThreadData = { place, port: port2, signal: this.#signal };
    this.#worker = new Worker(new URL("./thread.js", import.meta.url), {
      workerData,
      transferList: [port2],
      execArgv: [], // options for the program, such as --input-type, are not for this file
    });
    this.#ended = new Promise((resolve) => this.#worker.once("exit", resolve));
  }

  /** Starts the messaging thread and waits until all ranks have joined. Throws `DistributedError` if they do not join in time. */
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
    // the messaging thread does not keep the process running
    link.#worker.unref();
    link.#port.unref();
    return link;
  }

  /** Throws if a failure of the job is already known. It does not wait. */
  requireWhole(operation: string): void {
    this.#hear();
    if (this.#failure) throw this.#error(operation);
  }

  post(message: Data): void {
    this.#port.postMessage(message, [message.bytes.buffer]);
  }

  /** Sends a note about a call to the ranks that it concerns, so that they can check that they make it too. */
  note(made: Made): void {
    this.#noted += made.flows.filter((flow) => flow !== undefined).length;
    this.#port.postMessage(made);
  }

  /** Waits until every rank concerned has made each of the noted calls. Throws as `requireWhole` does. */
  awaitNotes(operation: string): void {
    const count = new Int32Array(this.#signal);
    for (;;) {
      const seen = Atomics.load(count, 0);
      this.requireWhole(operation);
      if (Atomics.load(count, 2) === this.#noted) return;
      Atomics.wait(count, 0, seen);
    }
  }

  /** Waits for the next message of each rank and returns them. Throws if the job fails or the time limit is exceeded. */
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

  /** Whether a call of this rank has thrown the failure of the job. */
  get isThrown(): boolean {
    return this.#isThrown;
  }

  /** Ends the job on all ranks. The caller says whether it throws an error that tells this rank's program of it. */
  fail(failure: Failed, isThrown = false): void {
    this.#isThrown ||= isThrown;
    if (this.#failure) return;
    this.#failure = failure;
    Atomics.store(this.failed, 0, 1);
    this.#port.postMessage(failure);
    // the failure is reported before this function returns, because the process may exit at once
    this.#sleepUntil("told");
  }

  /** Leaves the job and ends the messaging thread. Returns a failure that no call of this rank has thrown yet. */
  async close(): Promise<Error | undefined> {
    this.#hear();
    const untold = this.#failure && !this.#isThrown ? this.#error("dispose") : undefined;
    this.#worker.ref();
    this.#port.postMessage({ kind: "left", rank: this.place.rank } satisfies Message);
    await this.#ended;
    process.off("exit", this.#end);
    return untold;
  }

  #error(operation: string): DistributedError {
    this.#isThrown = true;
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

  /** Waits for a message of the messaging thread, at most FAREWELL_MS. */
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
