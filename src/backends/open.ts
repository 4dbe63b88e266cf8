/** Opening of a backend by name. */
import { platform } from "#platform";
import { ArgumentError, BackendError, messageOf } from "../errors.js";
import { unverifiedPair } from "../formats/chips.js";
import { type DatapathFamily, emulatedBy } from "../formats/datapath.js";
import { describe, nested, optionsOf } from "../options.js";
import { type Backend, datapathName } from "./backend.js";
import type { AddonExports, DeviceFacts } from "./cuda/addon.js";
import { deviceFault } from "./cuda/architectures.js";
import { type CudaOptions, deviceNumber, openCuda } from "./cuda/backend.js";
import { nativeFamily } from "./cuda/gemm/route.js";
import { NATIVE_OPERATIONS } from "./cuda/native-calls.js";
import { openWasm, threadCount } from "./wasm/backend.js";
import type { WasmOptions } from "./wasm/options.js";
import { checkWitness, type WitnessOptions } from "./witness/options.js";
import { addWitness } from "./witness/witness.js";

/**
 * The names that `openBackend` accepts: `wasm` (the reference on the CPU), `cuda` (an NVIDIA GPU), or `auto` (a GPU if
 * available, else the reference).
 */
export type BackendName = "wasm" | "cuda" | "auto";

/** Options of `openBackend`, for all backends. Each backend reads only the options that apply to it. */
export interface OpenOptions extends WasmOptions, CudaOptions {
  /** Recomputes sampled elements of live operations on the reference (docs/referee.md). Default: no witness. */
  readonly witness?: WitnessOptions | undefined;
}

function requireName(name: unknown): void {
  if (name !== "wasm" && name !== "cuda" && name !== "auto")
    throw new ArgumentError(`openBackend: name is ${describe(name)}; it must be wasm, cuda or auto`);
}

const checkOptions = optionsOf<OpenOptions>({
  threads: threadCount,
  device: deviceNumber,
  datapath: datapathName,
  witness: nested(checkWitness),
});

/** A backend that cannot be opened on this machine, and the reasons. */
export interface MissingBackend {
  /** The name of the backend. */
  readonly name: "cuda";
  /** The reason and what to do about it, in one line. */
  readonly reason: string;
  /** One line for each failed attempt, such as the path of an addon and its error, or a GPU that is too old. */
  readonly attempts: readonly string[];
}

/** The addon and its GPUs, with the reason why each cannot be opened, or a description of what is missing. */
type Cuda =
  | {
      readonly addon: AddonExports;
      readonly devices: readonly DeviceFacts[];
      readonly faults: readonly (string | undefined)[];
    }
  | { readonly addon: undefined; readonly missing: MissingBackend };

const STALE = "the addon was built from other sources; run `npx lockstep build-cuda` again";

let cached: Cuda | undefined;

/** Looks for the addon and its GPUs, once per process. */
function theCuda(): Cuda {
  cached ??= findCuda();
  return cached;
}

function findCuda(): Cuda {
  const missing = (reason: string, attempts: readonly string[]): Cuda => ({
    addon: undefined,
    missing: { name: "cuda", reason, attempts },
  });
  const addonFound = platform.loadAddon();
  if (!addonFound.exports)
    return missing(
      "the addon is not built; `npx lockstep build-cuda` builds it where a CUDA 13 toolkit is",
      addonFound.attempts,
    );
  const addon = addonFound.exports as AddonExports;
  const absent = NATIVE_OPERATIONS.filter((name) => typeof addon[name] !== "function");
  if (absent.length > 0) return missing(STALE, [`it has no ${absent.join(", ")}`]);
  try {
    const devices = addon.devices();
    const { architectures } = addon.versions();
    if (typeof architectures !== "string")
      return missing(STALE, ["it does not say for which GPUs it was compiled"]);
    const faults = devices.map((device) => deviceFault(architectures, device));
    if (faults.includes(undefined)) return { addon, devices, faults };
    return missing(
      "no GPU is here that the addon was compiled for",
      faults.filter((fault) => fault !== undefined),
    );
  } catch (error) {
    const message = messageOf(error);
    return missing("the addon finds no GPU; is the NVIDIA driver installed?", [message]);
  }
}

/** Returns why no GPU can be opened. The list is empty if one can. */
export function missingBackends(): readonly MissingBackend[] {
  const cuda = theCuda();
  return cuda.addon ? [] : [cuda.missing];
}

/** A GPU, and the properties of matrix products on it. */
export interface CudaDevice extends DeviceFacts {
  /** The default datapath of matrix products. */
  readonly datapath: DatapathFamily;
  /** The classes of operands for which the chip has no instruction, so that they are multiplied as bf16. */
  readonly emulates: readonly string[];
  /** Why the backend cannot open this GPU: it is too old, or the addon was not compiled for it. Absent if it can. */
  readonly fault?: string;
  /** Why the sums of products are unverified with this version of cuBLASLt. Absent if they were measured. */
  readonly unverified?: string;
}

/** Returns the GPUs of this machine, if the backend `cuda` can open one. The index is the number of the GPU. */
export function cudaDevices(): readonly CudaDevice[] {
  const cuda = theCuda();
  if (!cuda.addon) return [];
  const { cublasLt } = cuda.addon.versions();
  return cuda.devices.map((facts, i) => {
    const datapath = nativeFamily(facts);
    const unverified = unverifiedPair(facts, cublasLt);
    const fault = cuda.faults[i];
    const names = {
      ...facts,
      datapath,
      emulates: emulatedBy(datapath),
      ...(fault === undefined ? {} : { fault }),
    };
    return unverified === undefined ? names : { ...names, unverified };
  });
}

/**
 * Opens a backend: the reference (`wasm`), a GPU (`cuda`), or a GPU if available and else the reference (`auto`). A GPU for which
 * the addon was not compiled is not available.
 *
 * @throws `BackendError` if the requested backend is not available. The message has the reason of every attempt.
 * @throws `ArgumentError` for an unknown name or an invalid option value.
 */
export async function openBackend(name: BackendName = "auto", options: OpenOptions = {}): Promise<Backend> {
  requireName(name);
  const { witness, ...ownOptions } = checkOptions("openBackend", options);
  const backend = await open(name, ownOptions);
  if (witness) addWitness(backend, await openWasm({ threads: 1, datapath: backend.datapath }), witness);
  return backend;
}

async function open(name: BackendName, options: WasmOptions & CudaOptions): Promise<Backend> {
  if (name === "wasm") return openWasm(options);
  const cuda = theCuda();
  const fault = cuda.addon ? cuda.faults[options.device ?? 0] : reasonOf(cuda.missing);
  if (cuda.addon && fault === undefined) return openCuda(cuda.addon, options);
  if (name === "auto") return openWasm(options);
  throw new BackendError(`cuda: ${fault}; or open "wasm", which gives the same bits on the CPU`);
}

function reasonOf({ reason, attempts }: MissingBackend): string {
  return `${reason} (${attempts.join("; ")})`;
}
