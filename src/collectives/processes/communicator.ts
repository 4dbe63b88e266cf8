/** A group of processes that exchange data through their hosts. Every operation returns when it has completed. */
import type { Backend, Support } from "../../backends/backend.js";
import { DisposedError, DistributedError, messageOf } from "../../errors.js";
import { type Call, callOf, disagreement } from "../call.js";
import type { CollectiveArgs, CollectiveName, Communicator, Membership, Transport } from "../communicator.js";
import { type SumPlan, supportsPlan } from "../plan.js";
import { type Exchange, STEPS, type Steps } from "../steps/steps.js";
import { supportsCollective } from "../supports.js";
import type { Link } from "./link.js";
import { failed } from "./messages.js";

export class ProcessCommunicator implements Communicator {
  readonly id: string;
  readonly rank: number;
  readonly ranks: readonly number[];
  #disposed = false;

  constructor(
    readonly backend: Backend,
    private readonly link: Link,
    { id, rank, ranks }: Membership,
    private readonly parent?: ProcessCommunicator,
    readonly transport: Transport = { kind: "host", description: "requested" },
  ) {
    this.id = id;
    this.rank = rank;
    this.ranks = ranks;
  }

  get disposed(): boolean {
    return this.#disposed || this.parent?.disposed === true;
  }

  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support {
    return supportsCollective(op, args);
  }

  supportsPlan(plan: SumPlan): Support {
    return supportsPlan(plan);
  }

  /** Throws if the group was disposed of or the job has failed. */
  requireUsable(operation: string): void {
    this.#requireNotDisposed(operation);
    this.link.requireNoFailure(operation);
  }

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const call = callOf(op, args, this);
    this.requireUsable(call.operation);
    try {
      const steps: Steps = STEPS[op](this, args);
      for (let next = steps.next(); !next.done; ) next = steps.next(this.#exchange(call, next.value));
    } catch (error) {
      this.#report(error);
      throw error;
    }
  }

  /** Gathers bytes from all members. All members pass the same number of bytes. */
  gather(operation: string, bytes: Uint8Array): readonly Uint8Array[] {
    const messages = this.ranks.map((_, member) => (member === this.rank ? undefined : bytes));
    const expect = messages.map((each) => each?.length);
    const answers = this.#exchange(
      { operation, text: operation, key: `${operation} of ${bytes.length} bytes` },
      { send: messages, expect },
    );
    return answers.map((part, member) => (member === this.rank ? bytes : part));
  }

  async settled(): Promise<void> {
    this.link.requireNoFailure("barrier");
  }

  subgroup(membership: Membership): ProcessCommunicator {
    this.#requireNotDisposed("split");
    return new ProcessCommunicator(this.backend, this.link, membership, this, this.transport);
  }

  abort(reason: string): void {
    const { rank } = this.link.rendezvous;
    this.link.fail(failed("aborted", rank, `rank ${rank} ended the group: ${reason}`));
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    const failure = this.parent ? undefined : await this.link.close();
    if (failure) throw failure;
  }

  #exchange(call: Call, { send, expect }: Exchange): readonly Uint8Array[] {
    const { id: group, rank, ranks, link } = this;
    const number = (member: number): number => ranks[member] as number;
    const peersWithMessage = (messages: readonly unknown[]): readonly number[] =>
      messages.flatMap((message, member) => (message === undefined || member === rank ? [] : [member]));
    for (const to of peersWithMessage(send)) {
      const bytes = new Uint8Array(send[to] as Uint8Array);
      link.post({ kind: "data", from: number(rank), to: number(to), group, call, bytes });
    }
    const sources = peersWithMessage(expect);
    const { operation, text } = call;
    const messages = link.take({ group, from: sources.map(number), operation, text });
    const parts = send.map((bytes) => bytes ?? new Uint8Array());
    for (const [i, message] of messages.entries()) {
      const from = sources[i] as number;
      const mismatch = disagreement(this, call, from, message, expect[from] as number);
      if (mismatch) throw mismatch;
      parts[from] = message.bytes;
    }
    return parts;
  }

  /** Reports an error of this rank to the other ranks, which wait for this rank. The caller throws the error. */
  #report(error: unknown): void {
    const { rank } = this.link.rendezvous;
    const message = messageOf(error);
    if (error instanceof DistributedError)
      this.link.fail(failed(error.failure, error.rank, message.replace(`${error.operation}: `, "")), true);
    else this.link.fail(failed("lost", rank, `rank ${rank} failed: ${message}`), true);
  }

  #requireNotDisposed(operation: string): void {
    if (this.disposed) throw new DisposedError(`${operation}: the process group`);
  }
}
