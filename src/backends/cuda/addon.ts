/** The native addon: what it exports. It is built where a CUDA toolkit is (`npx lockstep build-cuda`). */
import { type ArgumentsOf, type Exactly, packing } from "./native-arguments.js";
import { NATIVE_CALLS, type NativeCall } from "./native-calls.js";

declare const opened: unique symbol;

/** A GPU that was opened; means something to the addon alone. */
export interface DeviceHandle {
  readonly [opened]: true;
}

/** What `devices` says of each GPU. */
export interface DeviceFacts {
  readonly name: string;
  /** Compute capability. */
  readonly major: number;
  readonly minor: number;
  readonly multiprocessors: number;
  readonly bytes: number;
}

/** A configured algorithm of cuBLASLt, as native/gemm/plan.h has it. */
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
  /** Bytes it needs. */
  readonly workspace: number;
  /** Its 64 bytes. */
  readonly words: readonly number[];
}

/** What answers besides the operations, which answer nothing. */
interface Answers {
  /** Prepares a product (gemm/descriptor.ts); its number is what `gemm` and the following take as `plan`. */
  gemmPlan: number;
  /** What cuBLASLt proposes, best first; nothing where it has no such product. */
  gemmCandidates: readonly NativeAlgorithm[];
  /** An algorithm with these attributes, where there is one. */
  gemmConfigure: NativeAlgorithm | undefined;
  /** Gives a plan the algorithm of word0 to word15; undefined, and nothing done, where it cannot run. */
  gemmChoose: NativeAlgorithm | undefined;
}

/** What a call of the addon takes. */
export type NativeArgs<K extends NativeCall> = ArgumentsOf<(typeof NATIVE_CALLS)[K]>;

interface Direct {
  readonly Device: new (device: number) => DeviceHandle;
  devices(): readonly DeviceFacts[];
  /** CUDA runtime and driver as 1000 * major + 10 * minor, cuBLASLt as it says. */
  versions(): { readonly runtime: number; readonly driver: number; readonly cublasLt: number };
  close(device: DeviceHandle): void;
  allocate(device: DeviceHandle, bytes: number): number;
  free(device: DeviceHandle, address: number): void;
  /** Gives the GPU what is kept for reuse; waits for the work enqueued. */
  trim(device: DeviceHandle): void;
  write(device: DeviceHandle, address: number, bytes: Uint8Array): void;
  read(device: DeviceHandle, address: number, bytes: number): Promise<Uint8Array>;
  readSync(device: DeviceHandle, address: number, bytes: number): Uint8Array;
  copy(device: DeviceHandle, to: number, from: number, bytes: number): void;
  synchronize(device: DeviceHandle): void;
  /** From here to `captureEnd`, which gives the number of a CUDA graph, or `captureAbort`, what is enqueued is recorded. */
  captureBegin(device: DeviceHandle): void;
  captureEnd(device: DeviceHandle): number;
  captureAbort(device: DeviceHandle): void;
  graphLaunch(device: DeviceHandle, graph: number): void;
  /** Waits for its launches. */
  graphDestroy(device: DeviceHandle, graph: number): void;
  /** Marks this moment of the stream. */
  mark(device: DeviceHandle): void;
  /** Milliseconds from each mark to the next, which are forgotten; waits for the last. */
  spans(device: DeviceHandle): Float64Array;
  /** Runs a kernel that fails: for tests of what happens then. */
  fault(device: DeviceHandle): void;
  memory(device: DeviceHandle): {
    readonly live: number;
    readonly reserved: number;
    readonly blocks: number;
  };
}

/**
 * What the addon exports; arguments lie in the slots of native-calls.ts. Every function throws an Error with a `code` of
 * src/errors.ts.
 */
export type AddonExports = Direct & {
  readonly [K in NativeCall]: (
    device: DeviceHandle,
    slots: Float64Array,
  ) => K extends keyof Answers ? Answers[K] : void;
};

/** The addon with the arguments of each call by their names: all that it needs, and no other. */
export type Addon = Direct & {
  readonly [K in NativeCall]: <A extends NativeArgs<K>>(
    device: DeviceHandle,
    args: A & Exactly<A, NativeArgs<K>>,
  ) => K extends keyof Answers ? Answers[K] : void;
};

/** `exports`, taking arguments by their names. */
export function namingArguments(exports: AddonExports): Addon {
  const named = Object.entries(NATIVE_CALLS).map(([name, declaration]) => {
    const native = exports[name as NativeCall] as (device: DeviceHandle, slots: Float64Array) => unknown;
    const packed = packing(declaration);
    return [name, (device: DeviceHandle, args: object) => native(device, packed(args))];
  });
  return { ...exports, ...Object.fromEntries(named) };
}
