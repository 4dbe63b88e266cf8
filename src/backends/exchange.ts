/** The interface by which ranks exchange device memory without the host. GPUs implement it by NCCL. */
import type { WideDType } from "../tensor/shape.js";

/** The exchange of device memory that a backend offers. */
export interface DeviceExchange {
  /** Identifies the device uniquely among all hosts. */
  readonly device: string;
  /**
   * The name and version of the library, such as `NCCL 2.27.7`. All ranks must have the same one. Throws `BackendError` if the
   * library is not installed, and `ArgumentError` if the environment enables a feature that is not allowed.
   */
  library(): string;
  /** Creates an invitation. One rank creates it and sends it to all others. */
  invite(): Uint8Array;
  /** Joins the ranks that have the same invitation, and waits for them. Throws `BackendError` if they do not join in time. */
  open(place: ExchangePlace): DeviceRanks;
}

/** The communicator that a process joins, and its rank in it. */
export interface ExchangePlace {
  /** The invitation that one of the ranks created. */
  readonly invitation: Uint8Array;
  /** This rank, counted from 0. */
  readonly rank: number;
  /** The number of ranks. */
  readonly size: number;
  /**
   * A shared array of one element. It is set to a nonzero value when the job has failed; everything that waits then stops
   * waiting.
   */
  readonly failed: Int32Array;
  /** The time limit of joining and of each operation on the device, in milliseconds. */
  readonly timeoutMs: number;
  /**
   * A function that the backend calls after each read until the communicator is closed. It throws if the data that was read may
   * be wrong.
   */
  readonly check: () => void;
}

/** Why a communicator has ended. */
export interface DeviceEnd {
  /**
   * The cause: `told`: `failed` was set. `late`: something took longer than `timeoutMs`. `broken`: the library failed. `closed`:
   * `close` was called.
   */
  readonly why: "told" | "late" | "broken" | "closed";
  /** The cause as a message for users. */
  readonly message: string;
}

/**
 * The arguments of `fold`, which combines the arrays of several ranks, called parts, element by element. Consecutive parts start
 * `stride` elements apart. If `own` is given, that part is at another address, and `parts` holds only the others.
 */
export interface FoldArgs {
  /** The address of the first part. */
  readonly parts: number;
  /** The distance between the starts of consecutive parts, in elements; at least `count`. */
  readonly stride: number;
  /** The address of a part that is not in the array at `parts`, and `at`, the rank of this part. */
  readonly own?: { readonly address: number; readonly at: number } | undefined;
  /** The number of parts, one per rank. */
  readonly ranks: number;
  /** The element type of the parts and of the result. */
  readonly dtype: WideDType;
  /**
   * The dtype to which each sum except the last is rounded. Undefined: a maximum is computed instead, in which NaN is ignored.
   */
  readonly sum: WideDType | undefined;
  /** The sum, rounded to `dtype`, is multiplied by f32(factor) and rounded again. 1: it is not multiplied. */
  readonly factor: number;
  /** The address of the result. It may equal the address of `own`. */
  readonly out: number;
  /** The number of elements of each part. */
  readonly count: number;
}

/**
 * A communicator, as this rank sees it. The work that it enqueues between `begin` and `end` runs concurrently with the backend's
 * own work. Addresses refer to the backend's memory. After the communicator has ended, every function throws `BackendError`.
 */
export interface DeviceRanks {
  /** Throws `ArgumentError` during the capture of a graph, because an exchange cannot be replayed. */
  requireRunning(): void;
  /** Makes the work that the communicator enqueues from now on wait for the work that the backend has enqueued so far. */
  begin(): void;
  /** Makes the work that the backend enqueues from now on wait for the work that the communicator has enqueued so far. */
  end(): void;
  /** Adds a transfer to the next exchange. `to` must be another rank. */
  send(x: number, bytes: number, to: number): void;
  /** Adds a transfer to the next exchange. `from` must be another rank. */
  receive(out: number, bytes: number, from: number): void;
  /** Enqueues the transfers that were added, as one group. */
  exchange(): void;
  /** Writes the `bytes` bytes of every rank to `out`, in order of ranks. `x` may be this rank's part of `out`. */
  allGather(x: number, out: number, bytes: number): void;
  /** Writes this rank's `count` elements of the sum over ranks to `out`. The library determines the order of additions. */
  reduceScatter(x: number, out: number, count: number, dtype: WideDType): void;
  /** Writes the `bytes` bytes at `x` on rank `root` to `out` on every rank. On other ranks `x` is not read. */
  broadcast(x: number, out: number, bytes: number, root: number): void;
  /** Combines parts (`FoldArgs`). The work is enqueued on the backend's own stream. */
  fold(args: FoldArgs): void;
  /** Returns why the communicator has ended, or undefined if it has not. */
  ended(): DeviceEnd | undefined;
  /** Releases the communicator. `inOrder` promises that no rank has pending work; otherwise pending work is aborted. */
  close(inOrder: boolean): void;
}
