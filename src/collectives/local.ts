/** A group of one rank, for which every operation is a copy or does nothing. */
import type { Backend, Support } from "../backends/backend.js";
import { DisposedError, DistributedError } from "../errors.js";
import type { CollectiveArgs, CollectiveName, Communicator, Membership, Transport } from "./communicator.js";
import { type SumPlan, supportsPlan } from "./plan.js";
import { STEPS, type Steps } from "./steps/steps.js";
import { supportsCollective } from "./supports.js";

/** The failure that all groups of the job share. */
class Job {
  #reason: string | undefined;
  #isThrown = false;

  fail(reason: string): void {
    this.#reason ??= reason;
  }

  /** Throws if the job has failed. */
  requireNoFailure(operation: string): void {
    if (this.#reason === undefined) return;
    this.#isThrown = true;
    throw new DistributedError("aborted", operation, 0, `rank 0 ended the group: ${this.#reason}`);
  }

  /** Throws if the job has failed and no call has thrown the failure yet. */
  requireThrown(operation: string): void {
    if (!this.#isThrown) this.requireNoFailure(operation);
  }
}

export class LocalCommunicator implements Communicator {
  readonly rank = 0;
  readonly transport: Transport = { kind: "none", description: "the group has one rank" };
  readonly #job: Job;
  #disposed = false;

  constructor(
    readonly backend: Backend,
    readonly id = "world",
    readonly ranks: readonly number[] = [0],
    private readonly parent?: LocalCommunicator,
  ) {
    this.#job = parent ? parent.#job : new Job();
  }

  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support {
    return supportsCollective(op, args);
  }

  supportsPlan(plan: SumPlan): Support {
    return supportsPlan(plan);
  }

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    this.requireUsable(op);
    const steps: Steps = STEPS[op](this, args);
    for (let next = steps.next(); !next.done; )
      next = steps.next(next.value.send.map((bytes) => bytes ?? new Uint8Array()));
  }

  async settled(): Promise<void> {
    this.requireUsable("barrier");
  }

  subgroup({ id, ranks }: Membership): Communicator {
    this.requireUsable("split");
    return new LocalCommunicator(this.backend, id, ranks, this);
  }

  abort(reason: string): void {
    this.#job.fail(reason);
  }

  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    if (!this.parent) this.#job.requireThrown("dispose");
  }

  /** Throws if the group was disposed of, or if a group of the job was aborted. */
  requireUsable(operation: string): void {
    if (this.#disposed) throw new DisposedError(`${operation}: the process group`);
    this.#job.requireNoFailure(operation);
  }
}
