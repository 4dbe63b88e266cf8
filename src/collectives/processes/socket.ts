/** Options and helpers for both ends of a connection. */
import type { Dealer, Router } from "zeromq";

/** Heartbeats: a peer counts as lost after `heartbeatTimeout` ms without a message. (The end of a process is noticed at once.) */
const HEARTBEAT = { heartbeatInterval: 2000, heartbeatTimeout: 30_000 } as const;

/** No message is dropped: queues are unbounded, and sending does not wait. */
export const SOCKET = {
  ...HEARTBEAT,
  sendHighWaterMark: 0,
  receiveHighWaterMark: 0,
  sendTimeout: 0,
  linger: 1000,
} as const;

/** Sends messages one after another, because ZeroMQ sockets allow only one send at a time. */
export class Outbox {
  #last: Promise<void> = Promise.resolve();

  constructor(
    private readonly socket: Dealer | Router,
    private readonly fail: (error: unknown) => void,
  ) {}

  send(frames: readonly (string | Uint8Array)[], fail = this.fail): void {
    this.#last = this.#last.then(() => this.socket.send([...frames])).catch(fail);
  }

  /** Resolves when all messages are sent. */
  flushed(): Promise<void> {
    return this.#last;
  }
}
