/** Opening a backend by name. */
import { platform } from "#platform";
import { ArgumentError, BackendError } from "../errors.js";
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
 * The backends that `openBackend` opens: the CPU reference, an NVIDIA GPU, or `auto`, a GPU if available and else the
 * reference.
 */
export type BackendName = "wasm" | "cuda" | "auto";

/** Options of `openBackend`: those of both backends, each of which reads its own. */
export interface OpenOptions extends WasmOptions, CudaOptions {}

function requireName(name: unknown): void {
  if (name !== "wasm" && name !== "cuda" && name !== "auto")
    throw new ArgumentError(
      `openBackend: no backend is named ${describe(name)}; there are wasm, cuda and auto`,
    );
}

const checkOptions = optionsOf<OpenOptions>({
  threads: threadCount,
  device: deviceNumber,
  datapath: datapathName,
});

/** A backend that cannot be opened here: all failed attempts, and what to do. */
export interface MissingBackend {
  /** The backend that cannot be opened here. */
  readonly name: "cuda";
  /** The reason, in one line, and what to do. */
  readonly reason: string;
  /** The attempts, one line each: the paths of the addon, and the failure of each. */
  readonly attempts: readonly string[];
}

/** The addon and its GPUs, or what is missing. */
type Cuda =
  | { readonly addon: AddonExports; readonly devices: readonly DeviceFacts[] }
  | { readonly addon: undefined; readonly missing: MissingBackend };

/** The oldest GPUs that have FP8: compute capability 8.9. */
const OLDEST = 89;

let known: Cuda | undefined;

/** Detected once per process. */
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
    const message = error instanceof Error ? error.message : String(error);
    return missing("the addon finds no GPU; is the NVIDIA driver installed?", [message]);
  }
}

/** Why no GPU can be opened; empty if one can. */
export function missingBackends(): readonly MissingBackend[] {
  const cuda = theCuda();
  return cuda.addon ? [] : [cuda.missing];
}

/** A GPU, and the properties of its products. */
export interface CudaDevice extends DeviceFacts {
  /** The default datapath of GEMMs. */
  readonly datapath: DatapathFamily;
  /** Classes of operands without an instruction, which are multiplied as bf16. */
  readonly emulates: readonly string[];
  /** Why its sums with this version of cuBLASLt are unverified; absent if they were measured. */
  readonly unverified?: string;
}

/** The GPUs that `cuda` can open, by number. */
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
 * Opens the reference (`wasm`), a GPU (`cuda`), or a GPU if available and else the reference (`auto`).
 *
 * @throws `BackendError` if the requested backend is not available, with the reason of every attempt.
 * @throws `ArgumentError` for an unknown name or an option outside its domain.
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
