/** The types of the native addon's exports. `npx lockstep build-cuda` builds the addon if a CUDA toolkit is installed. */
import type { DeviceEnd } from "../exchange.js";
import type { ArgumentsOf, Exactly } from "./native-arguments.js";
import { NATIVE_CALLS, NATIVE_LISTS, type NativeCall, type NativeList } from "./native-calls.js";
import { WRITERS } from "./packing.gen.js";
import { Slots } from "./slots.js";

declare const opened: unique symbol;

/** An opaque handle of an open GPU. */
export interface DeviceHandle {
  readonly [opened]: true;
}

/** The properties of a GPU, as `devices` returns them. */
export interface DeviceFacts {
  readonly name: string;
  /** The major number of the compute capability. */
  readonly major: number;
  readonly minor: number;
  readonly multiprocessors: number;
  readonly bytes: number;
  /** The UUID of the GPU, which no other GPU has. */
  readonly uuid: string;
}

/** A configured algorithm of cuBLASLt. See native/gemm/plan.h. */
export interface NativeAlgorithm {
  readonly id: number;
  readonly tile: number;
  readonly stages: number;
  readonly splitK: number;
  /** A value of cublasLtReductionScheme_t. */
  readonly scheme: number;
  readonly swizzle: number;
  readonly customOption: number;
  readonly innerShape: number;
  readonly cluster: number;
  /** The size of its workspace in bytes. */
  readonly workspace: number;
  /** The 64 bytes of the algorithm as sixteen 32-bit words. */
  readonly words: readonly number[];
}

/** The calls that return a value, with the type of the value. All other calls are operations and return nothing. */
interface Answers {
  /** Prepares a product (gemm/descriptor.ts) and returns its number, which `gemm` and the calls below take as `plan`. */
  gemmPlan: number;
  /** Returns the algorithms that cuBLASLt proposes, best first. The list is empty if cuBLASLt does not support the product. */
  gemmCandidates: readonly NativeAlgorithm[];
  /** Returns the algorithm with the given attributes, or undefined if cuBLASLt has none. */
  gemmConfigure: NativeAlgorithm | undefined;
  /**
   * Sets the algorithm of a plan, given as word0 to word15, and returns it. Returns undefined, with nothing changed, if it
   * cannot run.
   */
  gemmChoose: NativeAlgorithm | undefined;
}

/** The named arguments of a call of the addon. */
export type NativeArgs<K extends NativeCall> = ArgumentsOf<(typeof NATIVE_CALLS)[K]>;

interface Direct {
  readonly Device: new (device: number) => DeviceHandle;
  devices(): readonly DeviceFacts[];
  /**
   * Returns the versions of the CUDA runtime and driver as 1000 * major + 10 * minor, and of cuBLASLt as cuBLASLt numbers
   * itself, and the GPU architectures for which the kernels were compiled, in CMake's notation, separated by spaces.
   */
  versions(): {
    readonly runtime: number;
    readonly driver: number;
    readonly cublasLt: number;
    /** Undefined in addons that were built from older sources. */
    readonly architectures?: string;
  };
  close(device: DeviceHandle): void;
  allocate(device: DeviceHandle, bytes: number): number;
  free(device: DeviceHandle, address: number): void;
  /** Waits for enqueued work and returns the memory that is kept for reuse to the GPU. */
  trim(device: DeviceHandle): void;
  write(device: DeviceHandle, address: number, bytes: Uint8Array): void;
  read(device: DeviceHandle, address: number, bytes: number): Promise<Uint8Array>;
  readSync(device: DeviceHandle, address: number, bytes: number): Uint8Array;
  copy(device: DeviceHandle, to: number, from: number, bytes: number): void;
  /**
   * Enqueues a copy of device memory to pinned host memory, and returns the number of the copy. It exists until `hostFree`.
   */
  hostCopy(device: DeviceHandle, address: number, bytes: number): number;
  /** Enqueues a copy of all bytes of a host copy to device memory. */
  hostRestore(device: DeviceHandle, copy: number, address: number): void;
  hostFree(device: DeviceHandle, copy: number): void;
  synchronize(device: DeviceHandle): void;
  /**
   * Starts a capture: enqueued work is recorded instead of run, until `captureEnd` or `captureAbort`. `captureEnd` returns the
   * number of the CUDA graph.
   */
  captureBegin(device: DeviceHandle): void;
  captureEnd(device: DeviceHandle): number;
  captureAbort(device: DeviceHandle): void;
  graphLaunch(device: DeviceHandle, graph: number): void;
  /** Waits for the launches of a graph and destroys it. */
  graphDestroy(device: DeviceHandle, graph: number): void;
  /** Enqueues all work on the side stream until `sideEnd`. native/core/context.h describes how the two streams are ordered. */
  sideBegin(device: DeviceHandle): void;
  sideEnd(device: DeviceHandle): void;
  /** Records a CUDA event on the stream. */
  mark(device: DeviceHandle): void;
  /** Waits for the last event, returns the milliseconds between consecutive events and deletes the events. */
  spans(device: DeviceHandle): Float64Array;
  /**
   * Returns, for each `sideBegin` since the first event, for how many milliseconds the main stream waited for that work. `spans`
   * discards these times.
   */
  waits(device: DeviceHandle): Float64Array;
  /** Runs a kernel that fails on purpose, for tests of error handling. */
  fault(device: DeviceHandle): void;
  /** The version of NCCL, as 10000 * major + 100 * minor + patch. Throws if NCCL is not installed. */
  ncclVersion(): number;
  /** Returns a new ncclUniqueId, 128 bytes. Ranks that share it form one communicator. */
  ncclId(): Uint8Array;
  /**
   * Joins the ranks that have the same id, waits for all of them, and returns the number of the communicator. `failed` is a
   * shared array of one element, which is set when the job fails.
   */
  ncclOpen(
    device: DeviceHandle,
    id: Uint8Array,
    rank: number,
    size: number,
    failed: Int32Array,
    timeoutMs: number,
  ): number;
  /** Returns why a communicator has ended, or undefined if it has not. */
  ncclState(device: DeviceHandle, comm: number): DeviceEnd | undefined;
  /**
   * Closes a communicator. With `inOrder` it is destroyed after its work, which requires that all ranks close it; otherwise it is
   * aborted.
   */
  ncclClose(device: DeviceHandle, comm: number, inOrder: boolean): void;
  memory(device: DeviceHandle): {
    readonly live: number;
    readonly reserved: number;
    readonly blocks: number;
  };
}

/**
 * The exports as the addon has them: operations take their arguments in the slots of a Float64Array (native-calls.ts). Every
 * function throws an Error whose `code` is one of src/errors.ts.
 */
export type AddonExports = Direct & {
  readonly [K in NativeCall]: (
    device: DeviceHandle,
    slots: Float64Array,
  ) => K extends keyof Answers ? Answers[K] : void;
};

/** The addon with named arguments. TypeScript rejects a missing argument and an unknown one. */
export type Addon = Direct & {
  readonly [K in Exclude<NativeCall, NativeList>]: <A extends NativeArgs<K>>(
    device: DeviceHandle,
    args: A & Exactly<A, NativeArgs<K>>,
  ) => K extends keyof Answers ? Answers[K] : void;
} & {
  readonly [K in NativeList]: <A extends NativeArgs<K>>(
    device: DeviceHandle,
    list: readonly (A & Exactly<A, NativeArgs<K>>)[],
  ) => void;
};

/** Wraps the exports of the addon, so that operations take named arguments. */
export function namingArguments(exports: AddonExports): Addon {
  const named = Object.entries(NATIVE_CALLS).map(([name, declaration]) => {
    const native = exports[name as NativeCall] as (device: DeviceHandle, slots: Float64Array) => unknown;
    const write = WRITERS[name as NativeCall] as (slots: Slots, args: object) => void;
    const slots = new Slots(declaration);
    if (name in NATIVE_LISTS) {
      const callList = (device: DeviceHandle, list: readonly object[]): unknown =>
        native(device, slots.ofList(list, write));
      return [name, callList];
    }
    const call = (device: DeviceHandle, args: object): unknown => {
      write(slots, args);
      return native(device, slots.numbers);
    };
    return [name, call];
  });
  return { ...exports, ...Object.fromEntries(named) };
}
