/** The backend interface: memory, the operations of ops.ts, and a query whether an operation is supported. */
import { ArgumentError, DisposedError } from "../errors.js";
import { DATAPATH_FAMILIES, type DatapathFamily } from "../formats/datapath.js";
import type { GemmAlgorithm } from "../formats/gemm-algorithm.js";
import { type Domain, describe, oneOf } from "../options.js";
import { memoryOf } from "../tensor/memory.js";
import type { Memory } from "../tensor/storage.js";
import type { DeviceExchange } from "./exchange.js";
import type { GemmArgs } from "./ops/gemm.js";
import type { OpArgs, OpName } from "./ops.js";

/** How results agree with the reference: bitwise ("bits"), or only approximately, for the given reason. */
export type Agreement = "bits" | { readonly approximate: string };

/** The answer of a backend to whether it supports an operation with given arguments. */
export type Support =
  | {
      readonly ok: true;
      readonly agrees: Agreement;
      /**
       * Set if `agrees` relies on a model of the hardware that was not measured on this chip or with this version of its
       * library (formats/chips.ts). The text is the reason.
       */
      readonly unverified?: string;
    }
  | { readonly ok: false; readonly reason: string };

/** The memory use of a backend. */
export interface MemoryUse {
  /** The bytes of live tensors, as requested by their allocation. */
  readonly live: number;
  /** The bytes that the backend holds from the system, used or not. */
  readonly reserved: number;
  /** The number of allocated blocks. */
  readonly blocks: number;
}

/** Measures time on a backend that executes asynchronously. */
export interface Timeline {
  /** Enqueues a time stamp after the work enqueued so far. */
  mark(): void;
  /** Returns the milliseconds between consecutive time stamps and deletes the stamps. It waits for the last one. */
  spans(): Float64Array;
  /**
   * Returns one number for each use of `onSideStream` since the first time stamp: the milliseconds for which later work waited
   * for the work that was enqueued in it. Work that needs the work of two uses waits for the later one only. The result thus
   * shows which exchanges between ranks delayed the computation, and for how long. The call waits until the last of these waits
   * has ended. Call it before `spans`.
   */
  waits(): Float64Array;
}

/** Captured operations that can be replayed. */
export interface CapturedWork {
  /** Enqueues all captured operations again, on the same memory. */
  replay(): void;
  /** Frees the memory that only the captured work uses. Live tensors are not affected. */
  dispose(): void;
}

/** An implementation of all operations. `run` only enqueues work; reading a tensor waits for it. */
export interface Backend {
  /** `wasm` for the reference, `cuda` for a GPU. A third-party backend has another name. */
  readonly name: string;
  /** A description in one line: device, number of threads. */
  readonly description: string;
  /** The number of host threads that compute. It is 1 on a GPU. Results do not depend on it. */
  readonly threads: number;
  /** Why there are fewer threads than processors. Set if the option `threads` was left out and the host does not allow more. */
  readonly fewerThreads?: string | undefined;
  /** The default datapath of matrix products. */
  readonly datapath: DatapathFamily;
  /**
   * The memory of the backend's tensors. A backend of `openBackend` has it for backends that wrap it: it throws `ArgumentError`
   * for an access outside of the blocks that it allocated itself.
   */
  readonly memory: Memory;
  /** Present if the backend executes work asynchronously. */
  readonly timeline?: Timeline;
  /** Present if ranks can exchange device memory without copying it to the host. */
  readonly exchange?: DeviceExchange;
  /** Returns the current memory use. */
  memoryUse(): MemoryUse;
  /**
   * Returns unused reserved memory to the system. Tensors are not affected. A GPU waits for enqueued work, and its next
   * allocations are slower. The reference does nothing, because WebAssembly memory cannot shrink. Throws `BackendError` if the
   * GPU has failed, `DisposedError` if it is disposed.
   */
  trim(): void;
  /**
   * Returns whether the backend can run an operation with these arguments and how the result agrees with the reference, or the
   * reason why it cannot. It enqueues nothing and does not throw for validated arguments.
   */
  supports<K extends OpName>(op: K, args: OpArgs[K]): Support;
  /**
   * Runs an operation. The arguments are validated and include the outputs, which the caller has allocated. A backend that wraps
   * a backend of `openBackend` passes on the arguments that it received; for other arguments the inner backend throws
   * `ArgumentError`.
   */
  run<K extends OpName>(op: K, args: OpArgs[K]): void;
  /**
   * Returns the library algorithm that `run` would use for a supported product, or undefined if the backend uses a kernel of
   * its own.
   */
  algorithmFor?(args: GemmArgs): GemmAlgorithm | undefined;
  /** Returns the number of splits of K with which `run` would compute a supported product. Absent: "auto" is 1. */
  splitKFor?(args: GemmArgs): number;
  /**
   * Calls `body` and records its operations and copies without executing them; on a GPU they become a CUDA graph. If `body`
   * throws, nothing is kept. Throws `ArgumentError` if `body` waits (for example by reading a tensor) or captures a graph
   * itself, `UnsupportedError` for operations that depend on host state such as counters or random bits.
   */
  capture?(body: () => void): CapturedWork;
  /**
   * Calls `body` once, on a second stream. The work that `body` enqueues starts after all earlier work and runs concurrently with
   * later work. Later work that uses or frees memory of this work waits for it. Present if the backend supports concurrent work.
   */
  onSideStream?<R>(body: () => R): R;
  /** Whether `onSideStream` is running a body. */
  readonly isAside?: boolean;
  /** Frees all memory and ends the worker threads. Tensors of this backend cannot be used afterwards. */
  dispose(): Promise<void>;
}

/**
 * Returns the argument if it is a backend. Throws `ArgumentError` if it is not, for example a backend's name or an unawaited
 * promise; `DisposedError` if the backend is disposed.
 */
export function requireBackend(caller: string, backend: Backend, name = "backend"): Backend {
  const memory = memoryIn(backend);
  if (memory === undefined)
    throw new ArgumentError(
      `${caller}: ${name} is ${describe(backend)}, no backend; give what await openBackend("wasm") gives`,
    );
  if (memory.closed) throw new DisposedError(`${caller}: the ${backend.name} backend`);
  return backend;
}

/** Returns the memory of a backend, or undefined for anything that is not a backend, such as a proxy of one. */
function memoryIn(backend: Backend): Memory | undefined {
  try {
    const { supports, run } = backend;
    const memory = memoryOf(backend);
    const isBackend =
      typeof supports === "function" && typeof run === "function" && typeof memory?.allocate === "function";
    return isBackend ? memory : undefined;
  } catch {
    return undefined;
  }
}

/** Checks an option that is a backend. */
export const openedBackend: Domain = (caller, name, value) => requireBackend(caller, value as Backend, name);

/** Checks the name of a datapath family. */
export const datapathName = oneOf(DATAPATH_FAMILIES);

/** The answer of a backend whose result for an operation is bitwise equal to the definition. */
export const EXACT: Support = { ok: true, agrees: "bits" };

/**
 * Returns the number of splits of K with which a backend computes a supported product for which its library has no algorithm.
 */
export function splitsOn(backend: Pick<Backend, "splitKFor">, args: GemmArgs): number {
  return backend.splitKFor?.(args) ?? (args.splitK === "auto" ? 1 : args.splitK);
}
