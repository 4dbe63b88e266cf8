/**
 * What a group of ranks can do, as plain data, and who does it. `ProcessGroup` validates and allocates; a communicator moves
 * bytes and sums. Counts are of elements, one for each rank, in the order of ranks.
 */
import type { Backend, Support } from "../backends/backend.js";
import type { WideDType } from "../tensor/shape.js";
import type { Tensor } from "../tensor/tensor.js";
import type { SumPlan } from "./plan.js";

/** How parts are combined: added by a plan, or the larger of each two, which has no order. */
export type Reduction = { readonly reduction: "sum"; readonly plan: SumPlan } | { readonly reduction: "max" };

/** out = the x of all ranks, one behind the other. */
export interface AllGatherArgs {
  readonly x: Tensor;
  readonly counts: readonly number[];
  readonly out: Tensor;
}

/** out = this rank's part of what the x of all ranks combine to. */
export interface ReduceScatterArgs {
  readonly x: Tensor<WideDType>;
  readonly counts: readonly number[];
  readonly reduction: Reduction;
  readonly out: Tensor<WideDType>;
}

/** out = what the x of all ranks combine to; out may be x. */
export interface AllReduceArgs {
  readonly x: Tensor<WideDType>;
  readonly reduction: Reduction;
  readonly out: Tensor<WideDType>;
}

/** out = the x of `root`; out may be x. */
export interface BroadcastArgs {
  readonly x: Tensor;
  readonly root: number;
  readonly out: Tensor;
}

/** out = the part of every rank's x that is for this one, one behind the other. */
export interface AllToAllArgs {
  readonly x: Tensor;
  readonly sent: readonly number[];
  readonly received: readonly number[];
  readonly out: Tensor;
}

/** x goes to a rank that receives it. */
export interface SendArgs {
  readonly x: Tensor;
  readonly to: number;
}

/** out = what a rank sends. */
export interface RecvArgs {
  readonly out: Tensor;
  readonly from: number;
}

/** Every rank says the same. */
export interface AgreeArgs {
  /** What the ranks do: the name of a method. */
  readonly what: string;
  /** What all of them have to say. */
  readonly text: string;
}

/** The arguments of everything that a communicator runs, by name. */
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

/** The name of something that a communicator runs. */
export type CollectiveName = keyof CollectiveArgs;

/** Which member of which group this is. */
export interface Membership {
  /** The same on all members, and of no other group of the job. */
  readonly id: string;
  readonly rank: number;
  /** The members' ranks in the job, in the order of their ranks here. */
  readonly ranks: readonly number[];
}

/** How bytes go between ranks. */
export interface Transport {
  /** Nowhere, within the process, through the hosts, or from device to device. */
  readonly kind: "none" | "loopback" | "host" | "device";
  /** The library that does it, or why it is not done otherwise, for people. */
  readonly description: string;
}

/** Moves bytes between ranks and combines them. */
export interface Communicator extends Membership {
  /** Where this rank's tensors live. */
  readonly backend: Backend;
  readonly transport: Transport;
  supports<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): Support;
  /** As `supports` says it of a sum. */
  supportsPlan(plan: SumPlan): Support;
  /** Enqueues an operation on arguments that were validated. Throws `DistributedError` where the group has failed. */
  run<K extends CollectiveName>(op: K, args: CollectiveArgs[K]): void;
  /** Resolves once what was enqueued before is done. Rejects with `DistributedError` where it cannot be. */
  settled(): Promise<void>;
  /** One of some members of this group, of which this rank is one. Every member makes it, in the same order. */
  subgroup(membership: Membership): Communicator;
  /** Ends all groups of the job on all ranks. */
  abort(reason: string): void;
  /** Leaves. Of a group that `subgroup` made, only its own memory is given back. */
  dispose(): Promise<void>;
}
