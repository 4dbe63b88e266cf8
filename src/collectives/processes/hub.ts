/** The connections of rank 0: it admits the other ranks, forwards their messages, and reports a lost rank to all. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Router } from "zeromq";
import { messageOf } from "../../errors.js";
import { Gate, HANDSHAKE_MS, MAX_STRANGERS } from "./gate.js";
import { keysOf } from "./keys.js";
import {
  type Failed,
  type Frame,
  failed,
  frameOf,
  framesOf,
  type Hello,
  type Message,
  PROTOCOL,
} from "./messages.js";
import type { Rendezvous } from "./rendezvous.js";
import { Outbox, SOCKET } from "./socket.js";

/** After a lost connection, the hub checks after these delays which ranks it can still reach, in milliseconds. */
const PROBE_DELAYS_MS = [0, 50, 200, 1000] as const;

/**
 * Where ZeroMQ listens if a Unix socket is not available: a port of the loopback interface. A Unix socket lies in a folder that
 * only this user can enter.
 */
const LOOPBACK = "tcp://127.0.0.1:*";

export class Hub {
  readonly #router: Router;
  #gate: Gate | undefined;
  /** The folder of the Unix socket. */
  #folder: string | undefined;
  readonly #out: Outbox;
  #loops: readonly Promise<void>[] = [];
  /** The ZeroMQ routing id of each admitted rank. */
  readonly #members = new Map<number, Uint8Array>();
  readonly #left = new Set<number>();
  #failure: Failed | undefined;
  #onChange: () => void = () => undefined;

  constructor(
    private readonly rendezvous: Rendezvous,
    private readonly deliver: (message: Message) => void,
  ) {
    const { secretKey } = keysOf(rendezvous.token);
    this.#router = new Router({ ...SOCKET, curveServer: true, curveSecretKey: secretKey, mandatory: true });
    this.#out = new Outbox(this.#router, () => undefined);
  }

  /** Resolves when all ranks have joined; the result is the failure if they cannot. */
  async open(): Promise<Failed | undefined> {
    const { address, port, size, timeoutMs } = this.rendezvous;
    try {
      const inner = await this.#bindPrivate();
      this.#gate = new Gate(inner, { handshakeMs: HANDSHAKE_MS, strangers: size + MAX_STRANGERS });
      await this.#gate.listen(address, port);
    } catch (error) {
      return failed(
        "refused",
        0,
        `rank 0 cannot listen on port ${port}: ${messageOf(error)}; give another MASTER_PORT, or LOCKSTEP_PORT where torchrun listens on that itself`,
      );
    }
    this.#loops = [this.#receive(), this.#watch()];
    const haveJoined = await this.#until(
      () => this.#members.size === size - 1 || this.#failure !== undefined,
      timeoutMs,
    );
    if (!haveJoined) {
      const missingRanks = this.#others().filter((rank) => !this.#members.has(rank));
      const rankNames = missingRanks.map((rank) => `rank ${rank}`).join(" and ");
      this.fail(
        failed(
          "deadline",
          missingRanks[0],
          `${rankNames} did not come to ${address}:${port} within ${timeoutMs} ms`,
        ),
      );
    }
    if (this.#failure) return this.#failure;
    this.#broadcast({ kind: "welcome" });
    return undefined;
  }

  /** Handles a message of this process, or forwards one between other ranks. */
  pass(message: Message): void {
    if (message.kind === "failed") this.fail(message);
    else if (message.kind === "left") return;
    else if (message.to === 0) this.deliver(message);
    else this.#send(message.to, message);
  }

  /** Reports the first failure to all ranks. */
  fail(failure: Failed): void {
    if (this.#failure) return;
    this.#failure = failure;
    this.#broadcast(failure);
    this.deliver(failure);
    this.#onChange();
  }

  /** Resolves when all messages are sent. */
  flushed(): Promise<void> {
    return this.#out.flushed();
  }

  /** Leaves the job when all other ranks have left it, or when the job has failed and they were notified. */
  async leave(): Promise<void> {
    this.#broadcast({ kind: "left", rank: 0 });
    const canLeave = (): boolean =>
      this.#failure !== undefined || this.#others().every((rank) => this.#left.has(rank));
    await this.#until(canLeave, this.rendezvous.timeoutMs);
    await this.close();
  }

  /** Sends all pending messages, then closes the connections. */
  async close(): Promise<void> {
    await this.#out.flushed();
    this.#router.close();
    await this.#gate?.close();
    await Promise.all(this.#loops);
    if (this.#folder !== undefined) await rm(this.#folder, { recursive: true, force: true });
  }

  /** Listens on a private address, and returns it. */
  async #bindPrivate(): Promise<string> {
    try {
      this.#folder = await mkdtemp(join(tmpdir(), "lockstep-"));
      await this.#router.bind(`ipc://${join(this.#folder, "socket")}`);
    } catch {
      await this.#router.bind(LOOPBACK);
    }
    return this.#router.lastEndpoint as string;
  }

  #others(): readonly number[] {
    return Array.from({ length: this.rendezvous.size - 1 }, (_, i) => i + 1);
  }

  async #until(condition: () => boolean, timeoutMs: number): Promise<boolean> {
    if (condition()) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), timeoutMs);
      this.#onChange = () => {
        if (!condition()) return;
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  async #receive(): Promise<void> {
    for await (const [id, ...frames] of this.#router) {
      if (id) this.#handle(new Uint8Array(id), frames);
    }
  }

  #handle(id: Uint8Array, frames: readonly Uint8Array[]): void {
    const frame = frameOf(frames);
    if (frame.kind === "hello") {
      this.#admit(id, frame);
      return;
    }
    // messages of a peer that was not admitted are ignored
    const rank = [...this.#members].find(([, routingId]) => Buffer.compare(routingId, id) === 0)?.[0];
    if (rank === undefined) return;
    if (frame.kind === "left") this.#removeMember(rank);
    else if (frame.kind === "failed") this.pass(frame);
    else if ((frame.kind === "data" || frame.kind === "notes") && frame.from === rank) this.pass(frame);
  }

  #admit(id: Uint8Array, { protocol, rank, size }: Hello): void {
    const reason = this.#reasonAgainst(protocol, rank, size);
    if (reason !== undefined) {
      this.#out.send([id, ...framesOf(failed("refused", rank, reason))]);
      return;
    }
    this.#members.set(rank, id);
    this.#onChange();
  }

  #reasonAgainst(protocol: number, rank: number, size: number): string | undefined {
    const ownSize = this.rendezvous.size;
    if (protocol !== PROTOCOL)
      return `rank ${rank} uses protocol ${protocol} and rank 0 protocol ${PROTOCOL}; install the same version of lockstep on all hosts`;
    if (size !== ownSize)
      return `rank ${rank} was started with WORLD_SIZE ${size} and rank 0 with ${ownSize}; give all the same`;
    if (!Number.isInteger(rank) || rank < 1 || rank >= ownSize)
      return rank === 0
        ? "there is a rank 0 already; give each process a different RANK"
        : `there is no rank ${rank} among ${ownSize}; RANK is from 0 to ${ownSize - 1}`;
    if (this.#members.has(rank)) return `there is a rank ${rank} already; give each process a different RANK`;
    if (this.#failure) return `the job has failed: ${this.#failure.message}`;
    return undefined;
  }

  #removeMember(rank: number): void {
    this.#left.add(rank);
    this.#send(rank, { kind: "goodbye" });
    this.#broadcast({ kind: "left", rank });
    this.deliver({ kind: "left", rank });
    this.#onChange();
  }

  #broadcast(frame: Frame): void {
    for (const rank of this.#members.keys()) if (!this.#left.has(rank)) this.#send(rank, frame);
  }

  /** Sends to a rank. A rank that cannot be reached counts as lost. */
  #send(rank: number, frame: Frame): void {
    const id = this.#members.get(rank);
    if (id) this.#out.send([id, ...framesOf(frame)], () => this.#lose(rank));
  }

  #lose(rank: number): void {
    if (this.#left.has(rank)) return;
    this.#left.add(rank);
    this.fail(failed("lost", rank, `rank ${rank} is gone: its process ended without leaving the group`));
  }

  /**
   * Detects lost ranks. A disconnect event does not name the rank, so the hub then pings all ranks; sending to a lost rank fails.
   */
  async #watch(): Promise<void> {
    for await (const event of this.#router.events) {
      if (event.type !== "disconnect") continue;
      for (const wait of PROBE_DELAYS_MS) setTimeout(() => this.#broadcast({ kind: "ping" }), wait).unref();
    }
  }
}
