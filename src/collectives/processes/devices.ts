/**
 * A group of processes that exchange data from device to device. Operations are enqueued, and the host does not wait for them.
 */

import type { Backend, Support } from "../../backends/backend.js";
import { EXACT } from "../../backends/backend.js";
import type { DeviceExchange, DeviceRanks } from "../../backends/exchange.js";
import { BackendError } from "../../errors.js";
import { memoryOf } from "../../tensor/memory.js";
import { type Call, callOf } from "../call.js";
import type { CollectiveArgs, CollectiveName, Communicator, Membership, Transport } from "../communicator.js";
import { COLLECTIVES, type RingSide } from "../devices/collectives.js";
import { FLOWS } from "../devices/flow.js";
import { isRingOf, probeRings, type Rings } from "../devices/ring.js";
import type { SumPlan } from "../plan.js";
import { supportsCollective } from "../supports.js";
import type { ProcessCommunicator } from "./communicator.js";
import type { Link } from "./link.js";
import { failed, LEAVING } from "./messages.js";

/** The size of an invitation: large enough for an ncclUniqueId (128 bytes) and for the ids of other libraries. */
const INVITATION_BYTES = 256;

/** The device's time limit exceeds the host's time limit by this much, because only the host knows which rank is missing. */
const LATER_MS = 5000;

export class DeviceCommunicator implements Communicator {
  readonly id: string;
  readonly rank: number;
  readonly ranks: readonly number[];
  readonly #devices: DeviceRanks | undefined;
  readonly #rings: Rings;
  #last = "read";
  #closed = false;

  /** Opens the communicator. All members must call it. Throws `DistributedError` if they do not join in time. */
  constructor(
    readonly backend: Backend,
    private readonly exchange: DeviceExchange,
    private readonly link: Link,
    /** The group of the same members whose data moves through the host. */
    private readonly host: ProcessCommunicator,
    readonly transport: Transport,
    caller: string,
    /** The device communicators of the world group and of all its subgroups. */
    private readonly openCommunicators: DeviceRanks[] = [],
    private readonly isWorld = true,
  ) {
    this.id = host.id;
    this.rank = host.rank;
    this.ranks = host.ranks;
    this.#last = caller;
    this.#devices = this.ranks.length > 1 ? this.#open(caller) : undefined;
    if (this.#devices) this.openCommunicators.push(this.#devices);
    this.#rings = this.#devices ? this.#withJobFailure(() => this.#probe(caller)) : {};
  }

  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support {
    const support = supportsCollective(op, args);
    return support.ok && "reduction" in args && args.reduction.reduction === "sum"
      ? this.supportsPlan(args.reduction.plan)
      : support;
  }

  supportsPlan(plan: SumPlan): Support {
    if (plan.algorithm === "ranked" || isRingOf(this.#rings, plan)) return EXACT;
    const ring = this.#rings[plan.sum];
    const order = ring ? `along [${ring}]` : "along several rings";
    return {
      ok: true,
      agrees: "bits",
      unverified: `${this.transport.description} adds ${plan.sum} ${order} here; the sums along [${plan.order}] are added by a kernel`,
    };
  }

  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void {
    const call = onStream(this.backend, callOf(op, args, this));
    if (op === "agree" && call.operation !== "barrier") {
      this.host.run(op, args);
      return;
    }
    this.host.requireUsable(call.operation);
    this.#last = call.operation;
    const flows = this.ranks.map((_, member) =>
      member === this.rank ? undefined : FLOWS[op](args, this, member),
    );
    this.#withJobFailure(() => {
      // checked before other ranks are notified of the call
      this.#devices?.requireRunning();
      if (this.#devices) this.link.note({ kind: "enqueued", membership: this.#membership, call, flows });
      COLLECTIVES[op](this.#side, args);
    });
  }

  async settled(): Promise<void> {
    this.host.requireUsable("barrier");
    await this.#idle();
  }

  /** Resolves when all enqueued work has completed on all ranks. */
  async #idle(): Promise<void> {
    const memory = memoryOf(this.backend);
    const address = memory.allocate(1);
    try {
      await memory.read(address, 1);
    } finally {
      memory.free(address);
    }
    this.#check();
    if (this.#devices) this.link.awaitNotes(this.#last);
  }

  subgroup(membership: Membership): Communicator {
    const host = this.host.subgroup(membership);
    const { backend, exchange, link, transport, openCommunicators: opened } = this;
    return new DeviceCommunicator(backend, exchange, link, host, transport, "split", opened, false);
  }

  abort(reason: string): void {
    this.host.abort(reason);
  }

  async dispose(): Promise<void> {
    const failure = this.#closed ? undefined : await this.#close();
    this.#closed = true;
    await this.host.dispose();
    if (failure) throw failure;
  }

  /**
   * Closes all communicators when the world group is disposed of. It first waits until no rank has pending work. Subgroups are
   * closed here too, because their members do not leave them at the same time. Returns a failure that no call has thrown yet.
   */
  async #close(): Promise<unknown> {
    if (!this.isWorld || memoryOf(this.backend).closed) return undefined;
    const { isThrown } = this.link;
    let failure: unknown;
    try {
      await this.#idle();
      this.#leave();
    } catch (error) {
      failure = error;
    }
    for (const devices of this.openCommunicators) devices.close(failure === undefined);
    return isThrown ? undefined : failure;
  }

  /** Waits until all ranks leave the group. */
  #leave(): void {
    const call = { operation: LEAVING, text: LEAVING, key: LEAVING };
    const flows = this.ranks.map((_, member) =>
      member === this.rank ? undefined : { sends: 0, expects: 0 },
    );
    this.link.note({ kind: "enqueued", membership: this.#membership, call, flows });
    this.link.awaitNotes("dispose");
  }

  get #membership(): Membership {
    const { id, rank, ranks } = this;
    return { id, rank, ranks };
  }

  get #side(): RingSide {
    const { rank, ranks, backend } = this;
    const devices = this.#devices as DeviceRanks;
    return { rank, size: ranks.length, backend, devices, takesRing: (plan) => isRingOf(this.#rings, plan) };
  }

  #open(caller: string): DeviceRanks {
    const { rank, ranks, host, link, exchange } = this;
    const proposal = new Uint8Array(INVITATION_BYTES);
    if (rank === 0) proposal.set(exchange.invite());
    const [invitation] = host.gather(caller, proposal) as [Uint8Array];
    const { failureFlag: flag } = link;
    const { timeoutMs } = link.rendezvous;
    return this.#withJobFailure(() =>
      exchange.open({
        invitation,
        rank,
        size: ranks.length,
        failed: flag,
        timeoutMs: timeoutMs + LATER_MS,
        check: () => this.#check(),
      }),
    );
  }

  #probe(caller: string): Rings {
    const { rank, ranks, backend, host } = this;
    const devices = this.#devices as DeviceRanks;
    const gatherBytes = (bytes: Uint8Array) => host.gather(caller, bytes);
    return probeRings({ rank, size: ranks.length, backend, devices, allGather: gatherBytes });
  }

  /** Throws if the job or the communicator has failed. */
  #check(): void {
    this.link.requireNoFailure(this.#last);
    const end = this.#devices?.ended();
    if (!end || end.why === "closed") return;
    const { rank } = this.link.rendezvous;
    const failure = end.why === "late" ? "deadline" : "lost";
    this.link.fail(failed(failure, undefined, `rank ${rank}, in ${this.#last}: ${end.message}`));
    this.link.requireNoFailure(this.#last);
  }

  /**
   * Runs `body`. If it throws because the job has failed, the error of that failure is thrown instead. After an error about
   * arguments the group remains usable.
   */
  #withJobFailure<T>(body: () => T): T {
    try {
      return body();
    } catch (error) {
      this.#check();
      if (!this.#devices && error instanceof BackendError)
        this.link.fail(
          failed("lost", this.link.rendezvous.rank, `rank ${this.link.rendezvous.rank}: ${error.message}`),
          true,
        );
      throw error;
    }
  }
}

/** Marks a call on the side stream, so that all ranks must agree: the stream determines whether NCCL or copies move the data. */
function onStream({ isAside }: Backend, call: Call): Call {
  if (!isAside) return call;
  return { ...call, text: `${call.text} inside onSideStream`, key: `${call.key} aside` };
}
