/** The exports of the native addon, which `npx lockstep build-cuda` builds where a CUDA toolkit is installed. */
import { type ArgumentsOf, type Exactly, packing } from "./native-arguments.js";
import { NATIVE_CALLS, type NativeCall } from "./native-calls.js";

declare const opened: unique symbol;

/** An opaque handle of an open GPU. */
export interface DeviceHandle {
  readonly [opened]: true;
}

/** The properties of a GPU, as `devices` returns them. */
export interface DeviceFacts {
  readonly name: string;
  /** Compute capability. */
  readonly major: number;
  readonly minor: number;
  readonly multiprocessors: number;
  readonly bytes: number;
}

/** A configured algorithm of cuBLASLt: native/gemm/plan.h. */
export interface NativeAlgorithm {
  readonly id: number;
  readonly tile: number;
  readonly stages: number;
  readonly splitK: number;
  /** cublasLtReductionScheme_t. */
  readonly scheme: number;
  readonly swizzle: number;
  readonly customOption: number;
  readonly innerShape: number;
  readonly cluster: number;
  /** Workspace, in bytes. */
  readonly workspace: number;
  /** Its 64 bytes. */
  readonly words: readonly number[];
}

/** The calls that return something; operations return nothing. */
interface Answers {
  /** Prepares a product (gemm/descriptor.ts) and returns its number, the `plan` argument of `gemm` and the calls below. */
  gemmPlan: number;
  /** The algorithms that cuBLASLt proposes, best first; none if it has no such product. */
  gemmCandidates: readonly NativeAlgorithm[];
  /** The algorithm with these attributes, if there is one. */
  gemmConfigure: NativeAlgorithm | undefined;
  /** Sets a plan's algorithm, given as word0 to word15. Undefined, with nothing changed, if it cannot run. */
  gemmChoose: NativeAlgorithm | undefined;
}

/** The arguments of a call of the addon. */
export type NativeArgs<K extends NativeCall> = ArgumentsOf<(typeof NATIVE_CALLS)[K]>;

interface Direct {
  readonly Device: new (device: number) => DeviceHandle;
  devices(): readonly DeviceFacts[];
  /** CUDA runtime and driver as 1000 * major + 10 * minor, cuBLASLt in its own numbering. */
  versions(): { readonly runtime: number; readonly driver: number; readonly cublasLt: number };
  close(device: DeviceHandle): void;
  allocate(device: DeviceHandle, bytes: number): number;
  free(device: DeviceHandle, address: number): void;
  /** Returns memory kept for reuse to the GPU; waits for enqueued work. */
  trim(device: DeviceHandle): void;
  write(device: DeviceHandle, address: number, bytes: Uint8Array): void;
  read(device: DeviceHandle, address: number, bytes: number): Promise<Uint8Array>;
  readSync(device: DeviceHandle, address: number, bytes: number): Uint8Array;
  copy(device: DeviceHandle, to: number, from: number, bytes: number): void;
  synchronize(device: DeviceHandle): void;
  /** Begins recording enqueued work, until `captureEnd`, which returns the number of a CUDA graph, or `captureAbort`. */
  captureBegin(device: DeviceHandle): void;
  captureEnd(device: DeviceHandle): number;
  captureAbort(device: DeviceHandle): void;
  graphLaunch(device: DeviceHandle, graph: number): void;
  /** Destroys a graph after waiting for its launches. */
  graphDestroy(device: DeviceHandle, graph: number): void;
  /** Records an event on the stream. */
  mark(device: DeviceHandle): void;
  /** Milliseconds between successive events, which are then dropped; waits for the last. */
  spans(device: DeviceHandle): Float64Array;
  /** Runs a kernel that fails: for tests of error handling. */
  fault(device: DeviceHandle): void;
  memory(device: DeviceHandle): {
    readonly live: number;
    readonly reserved: number;
    readonly blocks: number;
  };
}

/**
 * The raw exports, which take arguments in the slots of native-calls.ts. Every function throws an Error with a `code` of
 * src/errors.ts.
 */
export type AddonExports = Direct & {
  readonly [K in NativeCall]: (
    device: DeviceHandle,
    slots: Float64Array,
  ) => K extends keyof Answers ? Answers[K] : void;
};

/** The addon with named arguments: each call takes all that it needs and no others. */
export type Addon = Direct & {
  readonly [K in NativeCall]: <A extends NativeArgs<K>>(
    device: DeviceHandle,
    args: A & Exactly<A, NativeArgs<K>>,
  ) => K extends keyof Answers ? Answers[K] : void;
};

/** Wraps `exports` to take named arguments. */
export function namingArguments(exports: AddonExports): Addon {
  const named = Object.entries(NATIVE_CALLS).map(([name, declaration]) => {
    const native = exports[name as NativeCall] as (device: DeviceHandle, slots: Float64Array) => unknown;
    const packed = packing(declaration);
    return [name, (device: DeviceHandle, args: object) => native(device, packed(args))];
  });
  return { ...exports, ...Object.fromEntries(named) };
}
