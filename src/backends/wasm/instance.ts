/** The compiled reference: one WebAssembly module and one shared memory. Each thread has its own instance. */

import { type Arguments, type Exports, WASM_BASE64 } from "#reference";
import { BackendError, messageOf } from "../../errors.js";

/** The names of the exports that are functions. */
export type ExportName = keyof Arguments;

export interface Instance {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly exports: Exports;
}

const INITIAL_PAGES = 32;
/**
 * Maximum memory sizes in pages, tried in order. A maximum only reserves address space, but a host with limited address space
 * rejects a large one.
 */
const MAXIMUM_PAGES = [65536, 32768, 16384, 4096];

/** The compiled reference, which all instances of a thread share. */
let compiled: Promise<WebAssembly.Module> | undefined;

function compile(): Promise<WebAssembly.Module> {
  const bytes = Uint8Array.from(atob(WASM_BASE64), (character) => character.charCodeAt(0));
  return WebAssembly.compile(bytes).catch((cause: unknown) => {
    compiled = undefined;
    throw new BackendError(
      `wasm: this host does not compile the reference: ${messageOf(cause)}; it needs WebAssembly with threads and SIMD, and a page with a content security policy 'wasm-unsafe-eval' in script-src`,
      { cause },
    );
  });
}

/**
 * Compiles the reference and instantiates it with a new shared memory. Throws `BackendError` if the host does not allow
 * WebAssembly or the memory.
 */
export async function openInstance(): Promise<Instance> {
  compiled ??= compile();
  const module = await compiled;
  const memory = sharedMemory();
  const instance = await WebAssembly.instantiate(module, { env: { memory, abort: onAbort } });
  return { module, memory, exports: instance.exports as Exports };
}

function sharedMemory(): WebAssembly.Memory {
  let cause: unknown;
  for (const maximum of MAXIMUM_PAGES) {
    try {
      return new WebAssembly.Memory({ initial: INITIAL_PAGES, maximum, shared: true });
    } catch (error) {
      cause = error;
    }
  }
  throw new BackendError("wasm: this host gives no shared memory; it needs 256 MiB of address space", {
    cause,
  });
}

function onAbort(): never {
  throw new BackendError("wasm: the reference aborted");
}
