/** Opening a backend by name. */
import { ArgumentError, BackendError } from "../errors.js";
import type { Backend } from "./backend.js";
import { openWasm, type WasmOptions } from "./wasm.js";

export type BackendName = "wasm" | "cuda" | "auto";

export interface OpenOptions extends WasmOptions {
  /** The GPU to use, for `cuda`. Default 0. */
  readonly device?: number;
}

/** A backend that could not be opened, and why. */
export interface MissingBackend {
  readonly name: "cuda";
  readonly reason: string;
}

/** Why there is no GPU here. */
export function missingBackends(): readonly MissingBackend[] {
  return [{ name: "cuda", reason: "this build has no CUDA backend" }];
}

/**
 * Opens the reference (`wasm`), a GPU (`cuda`), or a GPU where there is one and the reference elsewhere
 * (`auto`). Throws `BackendError` where the one asked for is not to be had, with the reason.
 */
export async function openBackend(name: BackendName = "auto", options: OpenOptions = {}): Promise<Backend> {
  if (name === "wasm" || name === "auto") return openWasm(options);
  if (name !== "cuda")
    throw new ArgumentError(`no backend is named "${name}"; there are wasm, cuda and auto`);
  const reasons = missingBackends().map((missing) => missing.reason);
  throw new BackendError(`cuda: ${reasons.join("; ")}; open "wasm", which gives the same bits on the CPU`);
}
