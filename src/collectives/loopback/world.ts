/** All ranks of one process: their streams, their messages, and the propagation of failures. */
import { DistributedError, messageOf } from "../../errors.js";
import { type Call, disagreement, type Message } from "../call.js";
import type { Membership } from "../communicator.js";
import type { Exchange } from "../steps/steps.js";
import { type Channel, Stream } from "./stream.js";

/** Creates the error with which a rank fails, for the operation that throws it. */
type Failure = (operation: string) => Error;

/** One rank. */
export class Rank {
  readonly stream = new Stream();
  #failure: Failure | undefined;
  #isThrown = false;
  hasLeft = false;

  constructor(
    readonly number: number,
    readonly world: World,
  ) {}

  /** Throws if the group has failed. */
  requireNoFailure(operation: string): void {
    if (this.#failure) throw this.#failureFor(operation);
  }

  /**
   * Throws if an enqueued operation still waits for other ranks. A blocking read would prevent these ranks from
   * running.
   */
  requireDone(): void {
    const { pending, waits } = this.stream;
    if (!waits) return;
    const [operation, missingRanks] = pending
      ? [pending.call.text, pending.missingRanks]
      : ["an operation", []];
    throw new DistributedError(
      "deadline",
      pending?.call.operation ?? "read",
      missingRanks[0],
      `rank ${this.number} reads a result of ${operation}, which rank ${missingRanks.join(", ")} has not called yet; ranks of one process take turns, so read by await data()`,
    );
  }

  /**
   * Returns the result of `body` after all enqueued operations. Rejects if the group fails, or if ranks do not make
   * their calls in time.
   */
  async whenReached<T>(operation: string, body: () => T): Promise<T> {
    this.requireNoFailure(operation);
    if (!this.stream.waits) return body();
    const outcome = await this.#reach(body);
    if (outcome) return outcome.value;
    throw this.#failureFor(operation);
  }

  /** Resolves after all enqueued operations have run or were dropped. */
  async waitUntilIdle(): Promise<void> {
    if (this.stream.waits) await this.#reach(() => undefined);
  }

  async #reach<T>(body: () => T): Promise<{ readonly value: T } | undefined> {
    const { timeoutMs } = this.world;
    const timer = setTimeout(() => this.world.expire(this), timeoutMs);
    let outcome: { readonly value: T } | undefined;
    await new Promise<void>((resolve) => {
      const run = (): void => {
        outcome = { value: body() };
      };
      this.stream.push({ work: { run, release: resolve } });
    });
    clearTimeout(timer);
    return outcome;
  }

  /** Drops all enqueued operations. */
  fail(failure: Failure): void {
    if (this.#failure) return;
    const operation = this.stream.pending?.call.operation;
    this.#failure = (currentOperation) => failure(operation ?? currentOperation);
    this.stream.drop();
  }

  /** The failure if no call of this rank has thrown it yet; otherwise undefined. */
  get unthrown(): Error | undefined {
    return this.#failure && !this.#isThrown ? this.#failureFor("dispose") : undefined;
  }

  #failureFor(operation: string): Error {
    this.#isThrown = true;
    return (this.#failure as Failure)(operation);
  }
}

export class World {
  readonly ranks: readonly Rank[];
  readonly #mail = new Map<string, Message[]>();
  #advancing = false;

  constructor(
    size: number,
    /** The time limit for reads that wait for other ranks. */
    readonly timeoutMs: number,
  ) {
    this.ranks = Array.from({ length: size }, (_, number) => new Rank(number, this));
  }

  /** Runs the operations of every rank as far as possible. */
  advanceAll(): void {
    if (this.#advancing) return;
    this.#advancing = true;
    try {
      let hasProgress = true;
      while (hasProgress) hasProgress = this.ranks.map((rank) => this.#advance(rank)).includes(true);
    } finally {
      this.#advancing = false;
    }
    this.#failOnDeparted();
  }

  /** Returns the channel from the other members of a group to one member. */
  channel(membership: Membership): Channel {
    const box = (from: number, to: number): Message[] => {
      const key = `${membership.id}:${from}>${to}`;
      const messages = this.#mail.get(key) ?? [];
      this.#mail.set(key, messages);
      return messages;
    };
    const numbers = (members: readonly number[]): readonly number[] =>
      members.map((member) => membership.ranks[member] as number);
    return {
      missingRanks: ({ expect }) =>
        numbers(
          peersWithMessage(membership, expect).filter((from) => box(from, membership.rank).length === 0),
        ),
      post(call, { send }) {
        for (const to of peersWithMessage(membership, send))
          box(membership.rank, to).push({ call, bytes: (send[to] as Uint8Array).slice() });
      },
      take: (call, exchange) =>
        takeMessages(membership, call, exchange, (from) => box(from, membership.rank).shift() as Message),
    };
  }

  /** Removes a rank. Ranks that wait for it fail. */
  leave(rank: Rank): void {
    rank.hasLeft = true;
    this.#failOnDeparted();
  }

  /** Ends all groups on all ranks. `failure` creates the error of each rank. */
  fail(failure: (rank: Rank) => Failure): void {
    for (const rank of this.ranks) rank.fail(failure(rank));
  }

  /** Fails the group because a rank has waited too long. */
  expire(rank: Rank): void {
    const pending = rank.stream.pending;
    if (!pending) return;
    const { call, missingRanks } = pending;
    const rankNames = missingRanks.map((each) => `rank ${each}`).join(" and ");
    this.fail(() => (operation) => {
      const message = `${rankNames} did not come to ${call.text}, where rank ${rank.number} waited ${this.timeoutMs} ms`;
      return new DistributedError("deadline", operation, missingRanks[0], message);
    });
  }

  #advance(rank: Rank): boolean {
    try {
      return rank.stream.advance();
    } catch (error) {
      this.#failBy(rank, error);
      return true;
    }
  }

  #failBy(rank: Rank, error: unknown): void {
    const message = messageOf(error);
    const reason = error instanceof DistributedError ? message.replace(`${error.operation}: `, "") : message;
    this.fail((member) => {
      if (member === rank) return () => (error instanceof Error ? error : new Error(message));
      if (error instanceof DistributedError)
        return (operation) => new DistributedError(error.failure, operation, error.rank, reason);
      return (operation) =>
        new DistributedError("lost", operation, rank.number, `rank ${rank.number} failed: ${message}`);
    });
  }

  /** Fails the group if a rank waits for a message from a rank that has left. */
  #failOnDeparted(): void {
    for (const rank of this.ranks) {
      const pending = rank.stream.pending;
      const departedRank = pending?.missingRanks.find((number) => this.ranks[number]?.hasLeft);
      if (!pending || departedRank === undefined) continue;
      const message = `rank ${departedRank} has left the group, and rank ${rank.number} waits for it in ${pending.call.text}`;
      this.fail(() => (operation) => new DistributedError("lost", operation, departedRank, message));
      return;
    }
  }
}

function peersWithMessage({ rank }: Membership, messages: readonly unknown[]): readonly number[] {
  return messages.flatMap((message, member) => (message === undefined || member === rank ? [] : [member]));
}

/** Returns the messages of all members, including this rank's message to itself. */
function takeMessages(
  membership: Membership,
  call: Call,
  { send, expect }: Exchange,
  next: (from: number) => Message,
): readonly Uint8Array[] {
  const messages = send.map((bytes) => bytes ?? new Uint8Array());
  for (const from of peersWithMessage(membership, expect)) {
    const message = next(from);
    const mismatch = disagreement(membership, call, from, message, expect[from] as number);
    if (mismatch) throw mismatch;
    messages[from] = message.bytes;
  }
  return messages;
}
