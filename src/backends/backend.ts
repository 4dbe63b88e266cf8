/** The backend interface: memory, and the operations of ops.ts with a query whether each is supported. */
import { ArgumentError, DisposedError } from "../errors.js";
import { DATAPATH_FAMILIES, type DatapathFamily } from "../formats/datapath.js";
import type { GemmAlgorithm } from "../formats/gemm-algorithm.js";
import { oneOf } from "../options.js";
import type { Memory } from "../tensor/storage.js";
import type { GemmArgs } from "./gemm-args.js";
import type { OpArgs, OpName } from "./ops.js";

/** How far results agree with the reference: bitwise, or not, for the given reason. */
export type Agreement = "bits" | { readonly approximate: string };

/** A backend's answer whether it would run an operation. */
export type Support =
  | {
      readonly ok: true;
      readonly agrees: Agreement;
      /**
       * Set, with the reason, if `agrees` follows from a model that was not measured: on this chip, or with this version of its
       * library (formats/chips.ts).
       */
      readonly unverified?: string;
    }
  | { readonly ok: false; readonly reason: string };

/** Bytes in use and bytes held from the system. */
export interface MemoryUse {
  /** Bytes of live tensors, as requested. */
  readonly live: number;
  /** Bytes held from the system, whether in use or not. */
  readonly reserved: number;
  /** Blocks in use. */
  readonly blocks: number;
}

/** Timing of a backend that executes asynchronously. */
export interface Timeline {
  /** Records a mark behind the work enqueued so far. */
  mark(): void;
  /** Milliseconds between successive marks, which are then dropped; waits for the last. */
  spans(): Float64Array;
}

/** Captured work that can be replayed. */
export interface CapturedWork {
  /** Enqueues all of it again, on the memory of the capture. */
  replay(): void;
  /** Frees the memory kept for it; live tensors are unaffected. */
  dispose(): void;
}

/** An implementation of all operations. `run` enqueues and returns; reading a tensor waits. */
export interface Backend {
  /** `wasm` for the reference, `cuda` for a GPU; a third-party backend has its own name. */
  readonly name: string;
  /** A one-line description: device, threads. */
  readonly description: string;
  /** The number of host threads that compute; 1 on a GPU. Results do not depend on it. */
  readonly threads: number;
  /** Why there are fewer threads than processors, if none were requested and the host did not allow more. */
  readonly fewerThreads?: string | undefined;
  /** The default datapath of GEMMs. */
  readonly datapath: DatapathFamily;
  /** The memory of its tensors. */
  readonly memory: Memory;
  /** Present if work runs asynchronously to the calls that enqueue it. */
  readonly timeline?: Timeline;
  /** Bytes and blocks in use now. */
  memoryUse(): MemoryUse;
  /**
   * Returns unused reserved memory to the system; tensors are unaffected. On a GPU this waits for enqueued work, and the next
   * allocations are slower. On the reference it does nothing: WebAssembly memory does not shrink. Throws `BackendError` if the
   * GPU has failed, and `DisposedError` for a GPU that was disposed of.
   */
  trim(): void;
  /**
   * Whether `run` would compute this and how far the result agrees, or the reason why not. Enqueues nothing, and throws nothing
   * for validated arguments.
   */
  supports<K extends OpName>(op: K, args: OpArgs[K]): Support;
  /** Runs an operation on validated arguments, which include its outputs, allocated by the caller. */
  run<K extends OpName>(op: K, args: OpArgs[K]): void;
  /** The library algorithm that `run` would use for a supported product; undefined for the backend's own kernels. */
  algorithmFor?(args: GemmArgs): GemmAlgorithm | undefined;
  /**
   * Calls `body` and records its operations and copies instead of running them: a CUDA graph on a GPU. If `body` throws,
   * nothing is kept. Throws `ArgumentError` for an action that waits, such as reading a tensor, and inside another capture;
   * `UnsupportedError` for operations with state on the host, such as counters or random draws.
   */
  capture?(body: () => void): CapturedWork;
  /** Frees everything, workers included. Tensors of this backend are unusable afterwards. */
  dispose(): Promise<void>;
}

/**
 * Throws `ArgumentError` for anything but a backend, such as its name or an unawaited promise; `DisposedError` for one that was
 * disposed of.
 */
export function requireBackend(user: string, backend: Backend): void {
  const { supports, run, memory } = (backend ?? {}) as Partial<Backend>;
  if (typeof supports !== "function" || typeof run !== "function" || typeof memory?.allocate !== "function")
    throw new ArgumentError(`${user}: the backend is missing; give what await openBackend("wasm") gives`);
  if (memory.closed) throw new DisposedError(`${user}: the ${backend.name} backend`);
}

/** A family of datapaths. */
export const datapathName = oneOf(DATAPATH_FAMILIES);

/** The answer of a backend that runs an operation bitwise equal to its definition. */
export const EXACT: Support = { ok: true, agrees: "bits" };
