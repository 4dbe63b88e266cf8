/** The native addon: what it exports, and finding it. It is built where a CUDA toolkit is (`npx lockstep build-cuda`). */

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

/** Arguments of an operation, by the names that native/ reads: addresses, sizes, format words, contract numbers. */
export type NativeArgs = Readonly<Record<string, number | boolean | undefined>>;

/** The operations, by the names they are exported under. */
export const NATIVE_OPERATIONS = [
  "encode",
  "decode",
  "amax",
  "sweep",
  "fill",
  "quantizeBlock",
  "quantizeTensor",
  "quantizeMx",
  "quantizeNvfp4",
  "hadamard",
  "gemm",
  "gemmForget",
  "gemmPlain",
  "gemmOperand",
  "gemmEpilogue",
  "gemmAlpha",
  "transpose",
  "relayout",
  "dequantize",
  "activation",
  "activationBackward",
  "gated",
  "gatedBackward",
  "clampedSwiglu",
  "clampedSwigluBackward",
  "norm",
  "normBackward",
  "normParameters",
  "columnSum",
  "crossEntropy",
  "crossEntropyBackward",
  "sgd",
  "adamw",
] as const;

export type NativeOperation = (typeof NATIVE_OPERATIONS)[number];

/** A configured algorithm of cuBLASLt, as native/gemm-plan.h has it. */
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

/** The addon's exports. Every function throws an Error with a `code` of src/errors.ts. */
export type Addon = {
  readonly Device: new (device: number) => DeviceHandle;
  devices(): readonly DeviceFacts[];
  /** CUDA runtime and driver as 1000 * major + 10 * minor, cuBLASLt as it says. */
  versions(): { readonly runtime: number; readonly driver: number; readonly cublasLt: number };
  close(device: DeviceHandle): void;
  allocate(device: DeviceHandle, bytes: number): number;
  free(device: DeviceHandle, address: number): void;
  write(device: DeviceHandle, address: number, bytes: Uint8Array): void;
  read(device: DeviceHandle, address: number, bytes: number): Promise<Uint8Array>;
  readSync(device: DeviceHandle, address: number, bytes: number): Uint8Array;
  synchronize(device: DeviceHandle): void;
  /** Prepares a product (gemm-descriptor.ts); its number is what `gemm` and the following take as `plan`. */
  gemmPlan(device: DeviceHandle, args: NativeArgs): number;
  /** What cuBLASLt proposes, best first; nothing where it has no such product. */
  gemmCandidates(device: DeviceHandle, args: NativeArgs): readonly NativeAlgorithm[];
  /** An algorithm with these attributes, where there is one. */
  gemmConfigure(device: DeviceHandle, args: NativeArgs): NativeAlgorithm | undefined;
  /** Gives a plan the algorithm of word0 to word15; undefined, and nothing done, where it cannot run. */
  gemmChoose(device: DeviceHandle, args: NativeArgs): NativeAlgorithm | undefined;
  /** Runs a kernel that fails: for tests of what happens then. */
  fault(device: DeviceHandle): void;
  memory(device: DeviceHandle): {
    readonly live: number;
    readonly reserved: number;
    readonly blocks: number;
  };
} & { readonly [K in NativeOperation]: (device: DeviceHandle, args: NativeArgs) => void };
