/** A group among the ranks of one process. */
import type { Backend, Support } from "../../backends/backend.js";
import { DisposedError, DistributedError } from "../../errors.js";
import { callOf } from "../call.js";
import type { CollectiveArgs, CollectiveName, Communicator, Membership, Transport } from "../communicator.js";
import { type SumPlan, supportsPlan } from "../plan.js";
import { STEPS, type Steps } from "../steps/steps.js";
import { supportsCollective } from "../supports.js";
import { retain } from "./retain.js";
import type { Rank } from "./world.js";

export class LoopbackCommunicator implements Communicator {
  readonly id: string;
  readonly rank: number;
  readonly ranks: readonly number[];
  readonly transport: Transport = { kind: "loopback", description: "ranks of one process" };
  #disposed = false;

  constructor(
    readonly backend: Backend,
    private readonly member: Rank,
    { id, rank, ranks }: Membership,
    private readonly parent?: LoopbackCommunicator,
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

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const rank = this.member;
    const call = callOf(op, args, this);
    this.#requireNotDisposed(call.operation);
    rank.requireNoFailure(call.operation);
    const retention = retain(args);
    const steps: Steps = STEPS[op](this, retention.args);
    const channel = rank.world.channel(this);
    rank.stream.push({ collective: { call, steps, channel, release: () => retention.release() } });
    rank.world.advanceAll();
    rank.requireNoFailure(call.operation);
  }

  async settled(): Promise<void> {
    await this.member.whenReached("barrier", () => undefined);
  }

  subgroup(membership: Membership): Communicator {
    this.#requireNotDisposed("split");
    return new LoopbackCommunicator(this.backend, this.member, membership, this);
  }

  abort(reason: string): void {
    const { number, world } = this.member;
    const message = `rank ${number} ended the group: ${reason}`;
    world.fail(() => (operation) => new DistributedError("aborted", operation, number, message));
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    if (this.parent) return;
    const rank = this.member;
    await rank.waitUntilIdle();
    const failure = rank.unthrown;
    rank.world.leave(rank);
    await this.backend.dispose();
    if (failure) throw failure;
  }

  #requireNotDisposed(operation: string): void {
    if (this.disposed) throw new DisposedError(`${operation}: the process group`);
  }
}
