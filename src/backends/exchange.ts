/** How processes exchange the memory of their devices without the host, which a backend may be able to: GPUs do by NCCL. */
import type { WideDType } from "../tensor/shape.js";

/** What a backend that can do it offers. */
export interface DeviceExchange {
  /** Names the device, and no other of any host. */
  readonly device: string;
  /**
   * Name and version of the library that does it, the same on all ranks: `NCCL 2.27.7`. Throws `BackendError` where it is not
   * here, and `ArgumentError` where the environment asks for what is refused.
   */
  library(): string;
  /** What one rank tells the others, so that they find each other. */
  invite(): Uint8Array;
  /** Joins the ranks that have the same invitation, and waits for them. Throws `BackendError` where they do not come. */
  open(place: ExchangePlace): DeviceRanks;
}

/** Which rank of which communicator a process becomes. */
export interface ExchangePlace {
  /** What `invite` gave to one of the ranks. */
  readonly invitation: Uint8Array;
  /** This rank, from 0. */
  readonly rank: number;
  /** The number of ranks. */
  readonly size: number;
  /** One shared element: not 0 once the job has failed, whereupon nothing waits any more. */
  readonly failed: Int32Array;
  /** Milliseconds that joining, and each operation on the device, may take. */
  readonly timeoutMs: number;
  /** Called behind every read of the backend, until the ranks are closed; throws what keeps its bytes from being right. */
  readonly check: () => void;
}

/** Why ranks do not work together any more. */
export interface DeviceEnd {
  /** Because `failed` was set, because something took longer than `timeoutMs`, because the library failed, or by `close`. */
  readonly why: "told" | "late" | "broken" | "closed";
  /** The same for people. */
  readonly message: string;
}

/** What `fold` combines: parts that lie `stride` elements apart from `parts` on, without the one at `own`, if that is given. */
export interface FoldArgs {
  /** The address of the first part. */
  readonly parts: number;
  /** Elements from one part to the next; at least `count`. */
  readonly stride: number;
  /** The address of one part that lies elsewhere, and its place among all. */
  readonly own?: { readonly address: number; readonly at: number } | undefined;
  /** The number of parts. */
  readonly ranks: number;
  /** The element type of the parts and of the result. */
  readonly dtype: WideDType;
  /** The type to which each sum but the last is rounded; undefined for a maximum, which passes over NaN. */
  readonly sum: WideDType | undefined;
  /** The address of the result, which may be that of `own`. */
  readonly out: number;
  /** Elements of each part. */
  readonly count: number;
}

/**
 * The ranks of one communicator. What they enqueue runs beside the backend's own work, from `begin` to `end`. Addresses are of
 * the backend's memory. Everything throws `BackendError` once the ranks have ended.
 */
export interface DeviceRanks {
  /** Throws `ArgumentError` while a graph is captured: what ranks exchange cannot be replayed. */
  requireRunning(): void;
  /** What the backend has enqueued so far comes before what ranks enqueue from now on. */
  begin(): void;
  /** What ranks have enqueued so far comes before what the backend enqueues from now on. */
  end(): void;
  /** Adds to the next exchange; not to this rank. */
  send(x: number, bytes: number, to: number): void;
  /** Adds to the next exchange; not from this rank. */
  receive(out: number, bytes: number, from: number): void;
  /** Enqueues what was added, all at once. */
  exchange(): void;
  /** out = the `bytes` of every rank, in their order. x may be this rank's place in out. */
  allGather(x: number, out: number, bytes: number): void;
  /** out = this rank's `count` elements of the sum, in the library's order. */
  reduceScatter(x: number, out: number, count: number, dtype: WideDType): void;
  /** out = the `bytes` at x on rank `root`; x is not read on other ranks. */
  broadcast(x: number, out: number, bytes: number, root: number): void;
  /** Enqueues on the backend. */
  fold(args: FoldArgs): void;
  /** Undefined as long as they work. */
  ended(): DeviceEnd | undefined;
  /** Gives their memory back. `inOrder` says that nothing is under way on any rank; without it, what is under way is given up. */
  close(inOrder: boolean): void;
}
