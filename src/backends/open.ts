/** Opening of a backend by name. */
import { platform } from "#platform";
import { ArgumentError, BackendError, messageOf } from "../errors.js";
import { unverifiedPair } from "../formats/chips.js";
import { type DatapathFamily, emulatedBy } from "../formats/datapath.js";
import { describe, optionsOf } from "../options.js";
import { type Backend, datapathName } from "./backend.js";
import type { AddonExports, DeviceFacts } from "./cuda/addon.js";
import { type CudaOptions, deviceNumber, openCuda } from "./cuda/backend.js";
import { nativeFamily } from "./cuda/gemm/route.js";
import { NATIVE_OPERATIONS } from "./cuda/native-calls.js";
import { openWasm, threadCount } from "./wasm/backend.js";
import type { WasmOptions } from "./wasm/options.js";

/**
 * The names that `openBackend` accepts: `wasm` (the reference on the CPU), `cuda` (an NVIDIA GPU), or `auto` (a GPU if
 * available, else the reference).
 */
export type BackendName = "wasm" | "cuda" | "auto";

/** Options of `openBackend`: those of both backends. Each backend reads only its own. */
export interface OpenOptions extends WasmOptions, CudaOptions {}

function requireName(name: unknown): void {
  if (name !== "wasm" && name !== "cuda" && name !== "auto")
    throw new ArgumentError(`openBackend: name is ${describe(name)}; it must be wasm, cuda or auto`);
}

const checkOptions = optionsOf<OpenOptions>({
  threads: threadCount,
  device: deviceNumber,
  datapath: datapathName,
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

/** The addon and its GPUs, or a description of what is missing. */
type Cuda =
  | { readonly addon: AddonExports; readonly devices: readonly DeviceFacts[] }
  | { readonly addon: undefined; readonly missing: MissingBackend };

/** The lowest compute capability with FP8, 8.9, as 10 * major + minor. */
const OLDEST = 89;

let known: Cuda | undefined;

/** Looks for the addon and its GPUs, once per process. */
function theCuda(): Cuda {
  known ??= findCuda();
  return known;
}

function findCuda(): Cuda {
  const missing = (reason: string, attempts: readonly string[]): Cuda => ({
    addon: undefined,
    missing: { name: "cuda", reason, attempts },
  });
  const found = platform.loadAddon();
  if (!found.exports)
    return missing(
      "the addon is not built; `npx lockstep build-cuda` builds it where a CUDA 13 toolkit is",
      found.attempts,
    );
  const addon = found.exports as AddonExports;
  const absent = NATIVE_OPERATIONS.filter((name) => typeof addon[name] !== "function");
  if (absent.length > 0)
    return missing("the addon was built from other sources; run `npx lockstep build-cuda` again", [
      `it has no ${absent.join(", ")}`,
    ]);
  try {
    const devices = addon.devices();
    if (devices.some(({ major, minor }) => 10 * major + minor >= OLDEST)) return { addon, devices };
    const names = devices.map(({ name, major, minor }) => `${name} is sm_${major}${minor}`);
    return missing(`no GPU with FP8 is here: sm_${OLDEST} or later`, names);
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
  /** Why the sums of products are unverified with this version of cuBLASLt. Absent if they were measured. */
  readonly unverified?: string;
}

/** Returns the GPUs that the backend `cuda` can open. The index is the number of the GPU. */
export function cudaDevices(): readonly CudaDevice[] {
  const cuda = theCuda();
  if (!cuda.addon) return [];
  const { cublasLt } = cuda.addon.versions();
  return cuda.devices.map((facts) => {
    const datapath = nativeFamily(facts);
    const unverified = unverifiedPair(facts, cublasLt);
    const known = { ...facts, datapath, emulates: emulatedBy(datapath) };
    return unverified === undefined ? known : { ...known, unverified };
  });
}

/**
 * Opens a backend: the reference (`wasm`), a GPU (`cuda`), or a GPU if available and else the reference (`auto`).
 *
 * @throws `BackendError` if the requested backend is not available. The message has the reason of every attempt.
 * @throws `ArgumentError` for an unknown name or an invalid option value.
 */
export async function openBackend(name: BackendName = "auto", options: OpenOptions = {}): Promise<Backend> {
  requireName(name);
  checkOptions("openBackend", options);
  if (name === "wasm") return openWasm(options);
  const cuda = theCuda();
  if (cuda.addon) return openCuda(cuda.addon, options);
  if (name === "auto") return openWasm(options);
  const { reason, attempts } = cuda.missing;
  throw new BackendError(
    `cuda: ${reason} (${attempts.join("; ")}); or open "wasm", which gives the same bits on the CPU`,
  );
}
