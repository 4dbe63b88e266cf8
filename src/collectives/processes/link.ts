/**
 * The main thread's interface to the messaging thread, which exchanges messages with the other processes. The main thread can
 * sleep until a message arrives.
 */
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from "node:worker_threads";
import { BackendError, DistributedError } from "../../errors.js";
import type { Message as PeerMessage } from "../call.js";
import {
  type Close,
  type Closed,
  type Data,
  type EnqueuedCall,
  type Failed,
  failed,
  type Message,
  type Reported,
  type ThreadData,
} from "./messages.js";
import type { Rendezvous } from "./rendezvous.js";

/** The messages that a rank waits for. */
export interface MessageRequest {
  readonly group: string;
  /** The senders, by their ranks in the job. */
  readonly from: readonly number[];
  /** The call as error messages name it. */
  readonly operation: string;
  readonly text: string;
}

/**
 * How long the main thread waits until the messaging thread has reported a failure to the other ranks or has ended, in
 * milliseconds.
 */
const FAREWELL_MS = 2000;

export class Link {
  readonly #port: MessagePort;
  readonly #worker: Worker;
  readonly #signal = new SharedArrayBuffer(12);
  /** An array of one element, 1 if the job has failed. Native code that cannot receive messages reads it. */
  readonly failureFlag = new Int32Array(this.#signal, 4, 1);
  readonly #mail = new Map<string, Data[]>();
  readonly #departed = new Set<number>();
  #failure: Failed | undefined;
  #isThrown = false;
  /** The number of notes that were sent to other ranks. */
  #noteCount = 0;
  readonly #ended: Promise<unknown>;
  readonly #replies = new Set<"reported" | "closed">();
  /** Ends the messaging thread when the process exits. */
  readonly #end = (): void => {
    this.#port.postMessage({ kind: "close" } satisfies Close);
    this.#sleepUntil("closed");
  };

  private constructor(readonly rendezvous: Rendezvous) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const workerData: ThreadData = { rendezvous, port: port2, signal: this.#signal };
    this.#worker = new Worker(new URL("./thread.js", import.meta.url), {
      workerData,
      transferList: [port2],
      execArgv: [], // the program's options, such as --input-type, must not apply to this file
    });
    this.#ended = new Promise((resolve) => this.#worker.once("exit", resolve));
  }

  /** Starts the messaging thread and waits until all ranks have joined. Throws `DistributedError` if they do not join in time. */
  static async open(caller: string, rendezvous: Rendezvous): Promise<Link> {
    const link = new Link(rendezvous);
    const failure = await new Promise<Failed | undefined>((resolve, reject) => {
      link.#worker.once("message", resolve);
      link.#worker.once("error", (cause) =>
        reject(
          new BackendError(`${caller}: the thread that talks to other ranks broke: ${cause.message}`, {
            cause,
          }),
        ),
      );
    });
    if (failure) {
      await link.#ended;
      throw new DistributedError(failure.failure, caller, failure.rank, failure.message);
    }
    process.once("exit", link.#end);
    // the messaging thread does not keep the process running
    link.#worker.unref();
    link.#port.unref();
    return link;
  }

  /** Throws if this rank was notified that the job has failed. It does not wait. */
  requireNoFailure(operation: string): void {
    this.#receive();
    if (this.#failure) throw this.#error(operation);
  }

  post(message: Data): void {
    this.#port.postMessage(message, [message.bytes.buffer]);
  }

  /** Sends a note about a call to the ranks that take part in it. Each of these ranks checks that it makes the same call. */
  note(call: EnqueuedCall): void {
    this.#noteCount += call.flows.filter((flow) => flow !== undefined).length;
    this.#port.postMessage(call);
  }

  /**
   * Waits until the notes about all calls of this rank are matched by the other ranks' calls. Throws as `requireNoFailure` does.
   */
  awaitNotes(operation: string): void {
    const count = new Int32Array(this.#signal);
    for (;;) {
      const lastCount = Atomics.load(count, 0);
      this.requireNoFailure(operation);
      if (Atomics.load(count, 2) === this.#noteCount) return;
      Atomics.wait(count, 0, lastCount);
    }
  }

  /** Waits for the next message of each rank and returns them. Throws if the job fails or the time limit is exceeded. */
  take({ group, from, operation, text }: MessageRequest): readonly PeerMessage[] {
    const { rank, timeoutMs } = this.rendezvous;
    const deadline = performance.now() + timeoutMs;
    const count = new Int32Array(this.#signal);
    for (;;) {
      const lastCount = Atomics.load(count, 0);
      this.#receive();
      if (this.#failure) throw this.#error(operation);
      const missingRanks = from.filter((each) => !this.#mail.get(`${group}:${each}`)?.length);
      if (missingRanks.length === 0)
        return from.map((each) => this.#mail.get(`${group}:${each}`)?.shift() as Data);
      const departedRank = missingRanks.find((each) => this.#departed.has(each));
      if (departedRank !== undefined)
        this.fail(
          failed(
            "lost",
            departedRank,
            `rank ${departedRank} has left the group, and rank ${rank} waits for it in ${text}`,
          ),
        );
      const remainingMs = deadline - performance.now();
      if (remainingMs <= 0) {
        const rankNames = missingRanks.map((each) => `rank ${each}`).join(" and ");
        this.fail(
          failed(
            "deadline",
            missingRanks[0],
            `${rankNames} did not come to ${text}, where rank ${rank} waited ${timeoutMs} ms`,
          ),
        );
      } else if (departedRank === undefined) Atomics.wait(count, 0, lastCount, remainingMs);
    }
  }

  /** Whether a call of this rank has thrown the failure of the job. */
  get isThrown(): boolean {
    return this.#isThrown;
  }

  /** Ends the job on all ranks. `isThrown` says that the caller throws an error about it to this rank's program. */
  fail(failure: Failed, isThrown = false): void {
    this.#isThrown ||= isThrown;
    if (this.#failure) return;
    this.#failure = failure;
    Atomics.store(this.failureFlag, 0, 1);
    this.#port.postMessage(failure);
    // the failure is reported before this function returns, because the process may exit at once
    this.#sleepUntil("reported");
  }

  /** Leaves the job and ends the messaging thread. Returns a failure that no call of this rank has thrown yet. */
  async close(): Promise<Error | undefined> {
    this.#receive();
    const failure = this.#failure && !this.#isThrown ? this.#error("dispose") : undefined;
    this.#worker.ref();
    this.#port.postMessage({ kind: "left", rank: this.rendezvous.rank } satisfies Message);
    await this.#ended;
    process.off("exit", this.#end);
    return failure;
  }

  #error(operation: string): DistributedError {
    this.#isThrown = true;
    const { failure, rank, message } = this.#failure as Failed;
    return new DistributedError(failure, operation, rank, message);
  }

  #receive(): void {
    for (;;) {
      const envelope = receiveMessageOnPort(this.#port) as
        | { readonly message: Message | Reported | Closed }
        | undefined;
      if (!envelope) return;
      const { message } = envelope;
      if (message.kind === "reported" || message.kind === "closed") this.#replies.add(message.kind);
      else if (message.kind === "failed") this.#failure ??= message;
      else if (message.kind === "left") this.#departed.add(message.rank);
      else if (message.kind === "data") this.#put(message);
    }
  }

  /** Waits for a message of the messaging thread, at most FAREWELL_MS. */
  #sleepUntil(kind: "reported" | "closed"): void {
    const count = new Int32Array(this.#signal);
    const deadline = performance.now() + FAREWELL_MS;
    for (;;) {
      const lastCount = Atomics.load(count, 0);
      this.#receive();
      const remainingMs = deadline - performance.now();
      if (this.#replies.has(kind) || remainingMs <= 0) return;
      Atomics.wait(count, 0, lastCount, remainingMs);
    }
  }

  #put(message: Data): void {
    const key = `${message.group}:${message.from}`;
    const box = this.#mail.get(key) ?? [];
    box.push(message);
    this.#mail.set(key, box);
  }
}
