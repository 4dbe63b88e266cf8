/** What a backend is: memory, and the operations of ops.ts, each of which it can be asked about first. */
import { ArgumentError, DisposedError } from "../errors.js";
import { DATAPATH_FAMILIES, type DatapathFamily } from "../formats/datapath.js";
import type { GemmAlgorithm } from "../formats/gemm-algorithm.js";
import { oneOf } from "../options.js";
import type { Memory } from "../tensor/storage.js";
import type { GemmArgs } from "./gemm-args.js";
import type { OpArgs, OpName } from "./ops.js";

/** How far results agree with the reference: to the bit, or for the reason given, not. */
export type Agreement = "bits" | { readonly approximate: string };

/** The answer to "would you run this?". */
export type Support =
  | {
      readonly ok: true;
      readonly agrees: Agreement;
      /**
       * Set, with the reason, where the bits follow from a model that was not measured: of a chip that nobody asked, or of this
       * chip with this version of its library (formats/chips.ts). `agrees` is then what the model promises.
       */
      readonly unverified?: string;
    }
  | { readonly ok: false; readonly reason: string };

/** Bytes in use and bytes held from the system. */
export interface MemoryUse {
  /** Bytes of tensors that were allocated and not disposed of, as they were asked for. */
  readonly live: number;
  /** Bytes held from the system, whether in use or not. */
  readonly reserved: number;
  /** Blocks in use. */
  readonly blocks: number;
}

/** When the work of a backend that runs by itself gets done. */
export interface Timeline {
  /** Marks the end of what is enqueued so far. */
  mark(): void;
  /** Milliseconds from each mark to the next, which are forgotten; waits for the last. */
  spans(): Float64Array;
}

/** Work that a backend has captured. */
export interface CapturedWork {
  /** Enqueues all of it again, on the memory that it was captured with. */
  replay(): void;
  /** Gives back what was kept for it; tensors that live stay as they are. */
  dispose(): void;
}

/** One way to compute. `run` enqueues and returns; reading a tensor back waits. */
export interface Backend {
  /** `wasm` for the reference, `cuda` for a GPU; a backend of your own has a name of its own. */
  readonly name: string;
  /** One line for people: device, threads. */
  readonly description: string;
  /** How many threads compute; 1 on a GPU, whose own threads are not counted. Results do not depend on it. */
  readonly threads: number;
  /** Why there are fewer threads than processors, where the host did not allow them and none were asked for. */
  readonly fewerThreads?: string | undefined;
  /** The datapath that GEMMs take unless told otherwise. */
  readonly datapath: DatapathFamily;
  /** Where its tensors live. */
  readonly memory: Memory;
  /** Where work is done apart from the calls that enqueue it. */
  readonly timeline?: Timeline;
  /** Bytes and blocks in use now. */
  memoryUse(): MemoryUse;
  /**
   * Gives back to the system what is held and not in use, so that others find room; tensors stay as they are. On a GPU this
   * waits for the work enqueued, and what is allocated next is slower. The reference has nothing to give: WebAssembly memory
   * does not shrink. Throws `BackendError` where the GPU has failed, and `DisposedError` for a GPU that was disposed of.
   */
  trim(): void;
  /**
   * Whether `run` would compute this, to which agreement, or the reason not to. Enqueues nothing, and throws nothing for
   * arguments that an operation has validated.
   */
  supports<K extends OpName>(op: K, args: OpArgs[K]): Support;
  /** Runs an operation on arguments that were validated. Outputs are among them, allocated by the caller. */
  run<K extends OpName>(op: K, args: OpArgs[K]): void;
  /** The algorithm of a library by which `run` computes a product that is supported; undefined for a kernel of its own. */
  algorithmFor?(args: GemmArgs): GemmAlgorithm | undefined;
  /**
   * Calls `body`, and records the operations and copies that it runs instead of doing them: a CUDA graph on a GPU. Where `body`
   * throws, nothing is kept. Throws `ArgumentError` for what waits, such as reading a tensor, and inside another capture;
   * `UnsupportedError` for operations that differ from one run to the next by what the host counts or draws.
   */
  capture?(body: () => void): CapturedWork;
  /** Frees everything, workers included. Tensors of this backend are unusable afterwards. */
  dispose(): Promise<void>;
}

/** Throws `ArgumentError` for anything but a backend: its name, or the promise of one; `DisposedError` for one that is gone. */
export function requireBackend(user: string, backend: Backend): void {
  const { supports, run, memory } = (backend ?? {}) as Partial<Backend>;
  if (typeof supports !== "function" || typeof run !== "function" || typeof memory?.allocate !== "function")
    throw new ArgumentError(`${user}: the backend is missing; give what await openBackend("wasm") gives`);
  if (memory.closed) throw new DisposedError(`${user}: the ${backend.name} backend`);
}

/** A family of datapaths. */
export const datapathName = oneOf(DATAPATH_FAMILIES);

/** That an operation is defined bit for bit and this backend gives those bits. */
export const EXACT: Support = { ok: true, agrees: "bits" };
