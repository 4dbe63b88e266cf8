/**
 * The options of the reference. They are in a separate file, so that the package's type declarations do not refer to
 * WebAssembly's.
 */
import type { Backend } from "../backend.js";

/** Options of the reference, which runs in WebAssembly on the CPU. */
export interface WasmOptions {
  /**
   * The number of threads, including the calling one. Results do not depend on it. Default: the number that the host suggests,
   * or 1 if workers cannot be started (`Backend.fewerThreads` then has the reason). If a number is given and cannot be started,
   * opening fails.
   */
  readonly threads?: number | undefined;
  /** The default datapath of matrix products. Default `hopper`. */
  readonly datapath?: Backend["datapath"] | undefined;
}
