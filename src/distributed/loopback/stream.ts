/**
 * What one rank of a process has enqueued, as a GPU's stream would have it: work runs at once until an operation of the group has
 * to wait for other ranks; from there on it waits in order.
 */
import type { Call } from "../call.js";
import type { Exchange, Steps } from "../steps/steps.js";

/** Something enqueued. */
export interface Work {
  run(): void;
  /** Called once it has run, or never will. */
  release(): void;
}

/** An operation of a group: where its messages go, and what it does with them. */
export interface Collective {
  readonly call: Call;
  readonly steps: Steps;
  readonly channel: Channel;
  /** Called once it is finished, or never will be. */
  release(): void;
}

/** The messages of one group between one rank and the others. */
export interface Channel {
  /** Members' ranks in the job that have not sent what is expected. */
  missing(exchange: Exchange): readonly number[];
  post(call: Call, exchange: Exchange): void;
  /** What has come from each. Throws `DistributedError` where it is of another call. */
  take(call: Call, exchange: Exchange): readonly Uint8Array[];
}

type Item = { readonly work: Work } | { readonly collective: Collective };

/** What the head of a stream waits for. */
export interface Pending {
  readonly call: Call;
  readonly missing: readonly number[];
}

export class Stream {
  #items: Item[] = [];
  #posted: Exchange | undefined;
  #running = false;

  /** Whether what is enqueued now would wait; what an operation of the group enqueues as it runs would not. */
  get waits(): boolean {
    return this.#items.length > 0 && !this.#running;
  }

  /** Whether anything is enqueued: also behind what runs now. */
  get queued(): boolean {
    return this.#items.length > 0;
  }

  push(item: Item): void {
    this.#items.push(item);
  }

  /** What the first operation waits for, once it has begun. */
  get pending(): Pending | undefined {
    const head = this.#items[0];
    if (!head || !("collective" in head) || !this.#posted) return undefined;
    const { call, channel } = head.collective;
    return { call, missing: channel.missing(this.#posted) };
  }

  /** Runs what can be run, and says whether that was anything. */
  advance(): boolean {
    if (this.#running) return false;
    let moved = false;
    this.#running = true;
    try {
      while (this.#step()) moved = true;
    } finally {
      this.#running = false;
    }
    return moved;
  }

  /** Forgets what is enqueued, without running it. */
  drop(): void {
    const items = this.#items;
    this.#items = [];
    this.#posted = undefined;
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
    const posted = this.#posted;
    if (!posted) {
      this.#follow(collective, steps.next());
      return true;
    }
    if (channel.missing(posted).length > 0) return false;
    this.#follow(collective, steps.next(channel.take(call, posted)));
    return true;
  }

  #follow(collective: Collective, { done, value }: IteratorResult<Exchange, void>): void {
    this.#posted = done ? undefined : value;
    if (done) this.#finish(collective);
    else collective.channel.post(collective.call, value);
  }

  #finish(what: { release(): void }): void {
    this.#items.shift();
    what.release();
  }
}
