/**
 * The interface of communicators. `ProcessGroup` validates arguments and allocates results; a communicator moves bytes and adds.
 * Every `counts` has the number of elements of each rank, in order of ranks.
 */
import type { Backend, Support } from "../backends/backend.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { SumPlan } from "./plan.js";

/**
 * How the tensors of all ranks are reduced: added by a plan, after which a mean multiplies by f32(1 / ranks), or by an
 * elementwise maximum, which needs no order.
 */
export type Reduction =
  | { readonly reduction: "sum" | "mean"; readonly plan: SumPlan }
  | { readonly reduction: "max" };

/** A description of x that must be equal on all ranks. It distinguishes tensors of the same type and shape. */
interface WithSubject {
  readonly subject?: string | undefined;
}

/** Concatenates the x of all ranks to `out`. */
export interface GatherPart extends WithSubject {
  readonly x: Tensor;
  readonly counts: readonly number[];
  readonly out: Tensor;
  /** Tensors that must have the same bytes on all ranks. Communicators that move bytes from device to device do not read them. */
  readonly shared?: readonly Tensor[] | undefined;
}

/** Several gathers at once. */
export interface AllGatherArgs extends WithSubject {
  readonly parts: readonly GatherPart[];
}

/** Reduces the x of all ranks, and writes this rank's elements of the result to `out`. */
export interface ReduceScatterArgs extends WithSubject {
  readonly x: Tensor<WideDType>;
  readonly counts: readonly number[];
  readonly reduction: Reduction;
  readonly out: Tensor<WideDType>;
}

/** Reduces the x of all ranks, and writes the result to `out` on every rank. `out` may be x. */
export interface AllReduceArgs extends WithSubject {
  readonly x: Tensor<WideDType>;
  readonly reduction: Reduction;
  readonly out: Tensor<WideDType>;
}

/** Copies the x of rank `root` to `out` on every rank. `out` may be x. */
export interface BroadcastArgs extends WithSubject {
  readonly x: Tensor;
  readonly root: number;
  readonly out: Tensor;
}

/** Sends a part of x to each rank, and concatenates the parts received from all ranks to `out`. */
export interface AllToAllArgs {
  readonly x: Tensor;
  readonly sent: readonly number[];
  readonly received: readonly number[];
  readonly out: Tensor;
}

/** Sends x to rank `to`, which receives it by `recv`. */
export interface SendArgs extends WithSubject {
  readonly x: Tensor;
  readonly to: number;
}

/** Receives `out` from rank `from`. */
export interface RecvArgs extends WithSubject {
  readonly out: Tensor;
  readonly from: number;
}

/** Checks that all ranks pass the same string. It moves no data. */
export interface AgreeArgs {
  /** The name of the method for which the ranks agree. */
  readonly what: string;
  /** The string that must be equal on all ranks. */
  readonly text: string;
}

/** The arguments of each operation of a communicator, by the operation's name. */
export interface CollectiveArgs {
  readonly allGather: AllGatherArgs;
  readonly reduceScatter: ReduceScatterArgs;
  readonly allReduce: AllReduceArgs;
  readonly broadcast: BroadcastArgs;
  readonly allToAll: AllToAllArgs;
  readonly send: SendArgs;
  readonly recv: RecvArgs;
  readonly agree: AgreeArgs;
}

/** The name of an operation of a communicator. */
export type CollectiveName = keyof CollectiveArgs;

/** A group, and this member's rank in it. */
export interface Membership {
  /** The name of the group: equal on all its members, and different from the names of the job's other groups. */
  readonly id: string;
  readonly rank: number;
  /** The ranks of the members in the job, in order of their ranks in the group. */
  readonly ranks: readonly number[];
}

/** How a group moves bytes between ranks. */
export interface Transport {
  /** `none`: the group has one rank. `loopback`: within a process. `host`: through the hosts. `device`: from device to device. */
  readonly kind: "none" | "loopback" | "host" | "device";
  /** A string for users: the name of the library that moves the bytes, or the reason why no faster transport is in use. */
  readonly description: string;
}

/** Moves bytes between ranks and reduces tensors. */
export interface Communicator extends Membership {
  /** The backend of this rank's tensors. */
  readonly backend: Backend;
  readonly transport: Transport;
  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support;
  /** Returns the answer of `supports` for a sum by this plan. */
  supportsPlan(plan: SumPlan): Support;
  /** Enqueues an operation. Its arguments have been validated. Throws `DistributedError` if the group has failed. */
  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void;
  /** Resolves when all work that was enqueued before has completed. Rejects with `DistributedError` if the group fails first. */
  settled(): Promise<void>;
  /** Creates the communicator of a subgroup that includes this rank. Every member of the subgroup calls it, in the same order. */
  subgroup(membership: Membership): Communicator;
  /** Ends all groups of the job on all ranks. */
  abort(reason: string): void;
  /** Leaves the group. Disposing of a subgroup's communicator does not end its parent. */
  dispose(): Promise<void>;
}
