/** A group of one rank, for which every operation is a copy or does nothing. */
import type { Backend, Support } from "../backends/backend.js";
import { DisposedError, DistributedError } from "../errors.js";
import type { CollectiveArgs, CollectiveName, Communicator, Membership, Transport } from "./communicator.js";
import { type SumPlan, supportsPlan } from "./plan.js";
import { STEPS, type Steps } from "./steps/steps.js";
import { supportsCollective } from "./supports.js";

export class LocalCommunicator implements Communicator {
  readonly rank = 0;
  readonly transport: Transport = { kind: "none", description: "the group has one rank" };
  #aborted: string | undefined;
  #disposed = false;

  constructor(
    readonly backend: Backend,
    readonly id = "world",
    readonly ranks: readonly number[] = [0],
    private readonly parent?: LocalCommunicator,
  ) {}

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
    this.#aborted = reason;
  }

  async dispose(): Promise<void> {
    this.#disposed = true;
  }

  /** Throws if the group was disposed of, or if it or one of its parent groups was aborted. */
  requireUsable(operation: string): void {
    if (this.#disposed) throw new DisposedError(`${operation}: the process group`);
    const reason = this.#reason();
    if (reason !== undefined)
      throw new DistributedError("aborted", operation, 0, `rank 0 ended the group: ${reason}`);
  }

  #reason(): string | undefined {
    return this.#aborted ?? (this.parent ? this.parent.#reason() : undefined);
  }
}
