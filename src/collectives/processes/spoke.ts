/** The connection of a rank other than 0 to rank 0. */
import { isIP } from "node:net";
import { Dealer } from "zeromq";
import { messageOf } from "../../errors.js";
import { withoutBrackets } from "./gate.js";
import { keysOf } from "./keys.js";
import { type Failed, failed, frameOf, framesOf, type Message, PROTOCOL } from "./messages.js";
import type { Rendezvous } from "./rendezvous.js";
import { Outbox, SOCKET } from "./socket.js";

/**
 * The number of failed handshakes after which a rank gives up. A single failure need not mean a wrong token: rank 0 also closes
 * the oldest unauthenticated connections if there are too many.
 */
const MAX_HANDSHAKES = 5;

export class Spoke {
  readonly #dealer: Dealer;
  readonly #out: Outbox;
  #loops: readonly Promise<void>[] = [];
  #onAnswer: (failure: Failed | undefined) => void = () => undefined;
  #open = false;
  #onGoodbye: () => void = () => undefined;

  constructor(
    private readonly rendezvous: Rendezvous,
    private readonly deliver: (message: Message) => void,
  ) {
    const { publicKey, secretKey } = keysOf(rendezvous.token);
    this.#dealer = new Dealer({
      ...SOCKET,
      curveServerKey: publicKey,
      curvePublicKey: publicKey,
      curveSecretKey: secretKey,
      ipv6: isIP(withoutBrackets(rendezvous.address)) === 6,
      reconnectInterval: 100,
    });
    this.#out = new Outbox(this.#dealer, () => this.#lose());
  }

  /** Resolves when all ranks have joined; the result is the failure if they cannot. */
  async open(): Promise<Failed | undefined> {
    const { address, port, rank, size, timeoutMs } = this.rendezvous;
    const answer = new Promise<Failed | undefined>((resolve) => {
      this.#onAnswer = resolve;
    });
    const host = withoutBrackets(address);
    const endpoint = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
    const deadlineFailure = failed(
      "deadline",
      0,
      `rank 0 at ${endpoint} did not admit rank ${rank} within ${timeoutMs} ms; check that all ranks are started`,
    );
    // rank 0 has the same time limit, and reports the missing rank
    const timer = setTimeout(() => this.#onAnswer(deadlineFailure), timeoutMs + 1000);
    this.#loops = [this.#receive(), this.#watch(endpoint)];
    try {
      this.#dealer.connect(`tcp://${endpoint}`);
      this.#out.send(framesOf({ kind: "hello", protocol: PROTOCOL, rank, size }));
    } catch (error) {
      this.#onAnswer(
        failed("refused", 0, `rank ${rank} cannot connect to rank 0 at ${endpoint}: ${messageOf(error)}`),
      );
    }
    const failure = await answer;
    clearTimeout(timer);
    this.#open = failure === undefined;
    return failure;
  }

  pass(message: Message): void {
    this.#out.send(framesOf(message));
  }

  /** Resolves when all messages are sent. */
  flushed(): Promise<void> {
    return this.#out.flushed();
  }

  /** Leaves the job after rank 0 has forwarded all messages of this rank. */
  async leave(): Promise<void> {
    const goodbye = new Promise<void>((resolve) => {
      this.#onGoodbye = resolve;
    });
    const { rank, timeoutMs } = this.rendezvous;
    const timer = setTimeout(() => this.#onGoodbye(), timeoutMs);
    if (this.#open) this.#out.send(framesOf({ kind: "left", rank }));
    else this.#onGoodbye();
    await goodbye;
    clearTimeout(timer);
    await this.close();
  }

  /** Sends all pending messages, then closes the connection. */
  async close(): Promise<void> {
    await this.#out.flushed();
    this.#open = false;
    this.#dealer.close();
    await Promise.all(this.#loops);
  }

  async #receive(): Promise<void> {
    for await (const frames of this.#dealer) {
      const frame = frameOf(frames);
      if (frame.kind === "welcome") this.#onAnswer(undefined);
      else if (frame.kind === "goodbye") this.#onGoodbye();
      else if (frame.kind === "failed" && !this.#open) this.#onAnswer(frame);
      else if (frame.kind !== "hello" && frame.kind !== "ping") this.deliver(frame);
    }
  }

  async #watch(endpoint: string): Promise<void> {
    let failures = 0;
    for await (const { type } of this.#dealer.events) {
      if (type === "disconnect") this.#lose();
      else if (type.startsWith("handshake:error") && ++failures === MAX_HANDSHAKES)
        this.#onAnswer(
          failed(
            "refused",
            0,
            `rank 0 at ${endpoint} refused rank ${this.rendezvous.rank}: its token differs, or another program listens there; give all ranks the same LOCKSTEP_JOB_TOKEN`,
          ),
        );
    }
  }

  /** Handles the loss of rank 0. */
  #lose(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#onGoodbye();
    this.deliver(failed("lost", 0, "rank 0 is gone: its process ended without leaving the group"));
  }
}
