/**
 * The stream of one rank, which works like a CUDA stream: operations run in order. An operation runs at once, unless a collective
 * operation before it still waits for other ranks.
 */
import type { Call } from "../call.js";
import type { Exchange, Steps } from "../steps/steps.js";

/** An enqueued operation of the backend. */
export interface Work {
  run(): void;
  /** Called after the operation has run or was dropped. */
  release(): void;
}

/** An enqueued collective operation: its steps, and the channel of its messages. */
export interface Collective {
  readonly call: Call;
  readonly steps: Steps;
  readonly channel: Channel;
  /** Called after the operation has finished or was dropped. */
  release(): void;
}

/** The messages of one group between one rank and the others. */
export interface Channel {
  /** The members that have not sent all expected messages, by their ranks in the job. */
  missingRanks(exchange: Exchange): readonly number[];
  post(call: Call, exchange: Exchange): void;
  /** Removes and returns the next message of each member. Throws `DistributedError` if a message belongs to another call. */
  take(call: Call, exchange: Exchange): readonly Uint8Array[];
}

type Item = { readonly work: Work } | { readonly collective: Collective };

/** The collective operation at the head of a stream, and the ranks that it waits for. */
export interface Pending {
  readonly call: Call;
  readonly missingRanks: readonly number[];
}

export class Stream {
  #items: Item[] = [];
  #currentExchange: Exchange | undefined;
  #running = false;

  /** Whether a newly enqueued operation has to wait. An operation that a running collective enqueues does not wait. */
  get waits(): boolean {
    return this.#items.length > 0 && !this.#running;
  }

  /** Whether an operation is enqueued or running. */
  get queued(): boolean {
    return this.#items.length > 0;
  }

  push(item: Item): void {
    this.#items.push(item);
  }

  /** The collective operation at the head of the stream, if it has started. */
  get pending(): Pending | undefined {
    const head = this.#items[0];
    if (!head || !("collective" in head) || !this.#currentExchange) return undefined;
    const { call, channel } = head.collective;
    return { call, missingRanks: channel.missingRanks(this.#currentExchange) };
  }

  /** Runs operations until the stream is empty or has to wait. Returns whether an operation ran. */
  advance(): boolean {
    if (this.#running) return false;
    let hasRun = false;
    this.#running = true;
    try {
      while (this.#step()) hasRun = true;
    } finally {
      this.#running = false;
    }
    return hasRun;
  }

  /** Drops all enqueued operations without running them. */
  drop(): void {
    const items = this.#items;
    this.#items = [];
    this.#currentExchange = undefined;
    for (const item of items) ("work" in item ? item.work : item.collective).release();
  }

  #step(): boolean {
    const head = this.#items[0];
    if (!head) return false;
    if ("collective" in head) return this.#exchange(head.collective);
    head.work.run();
    this.#finish(head.work);
    return true;
  }

  #exchange(collective: Collective): boolean {
    const { call, steps, channel } = collective;
    const exchange = this.#currentExchange;
    if (!exchange) {
      this.#follow(collective, steps.next());
      return true;
    }
    if (channel.missingRanks(exchange).length > 0) return false;
    this.#follow(collective, steps.next(channel.take(call, exchange)));
    return true;
  }

  #follow(collective: Collective, { done, value }: IteratorResult<Exchange, void>): void {
    this.#currentExchange = done ? undefined : value;
    if (done) this.#finish(collective);
    else collective.channel.post(collective.call, value);
  }

  #finish(item: { release(): void }): void {
    this.#items.shift();
    item.release();
  }
}
