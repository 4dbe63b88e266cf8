/** What both ends of a connection have alike. */
import type { Dealer, Router } from "zeromq";

/** A peer that says nothing for so long is gone, host and all; a process that ends is seen at once. */
const HEARTBEAT = { heartbeatInterval: 2000, heartbeatTimeout: 30_000 } as const;

/** Nothing is dropped: queues have no bound, and sending does not wait. */
export const SOCKET = {
  ...HEARTBEAT,
  sendHighWaterMark: 0,
  receiveHighWaterMark: 0,
  sendTimeout: 0,
  linger: 1000,
} as const;

/** Sends one message after another, as ZeroMQ's sockets want it. */
export class Outbox {
  #last: Promise<void> = Promise.resolve();

  constructor(
    private readonly socket: Dealer | Router,
    private readonly fail: (error: unknown) => void,
  ) {}

  send(frames: readonly (string | Uint8Array)[], fail = this.fail): void {
    this.#last = this.#last.then(() => this.socket.send([...frames])).catch(fail);
  }

  /** Resolves once all is sent. */
  flushed(): Promise<void> {
    return this.#last;
  }
}
