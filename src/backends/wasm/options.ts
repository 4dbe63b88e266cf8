/** Options of the reference; a separate file, so that the package's types do not refer to WebAssembly's. */
import type { Backend } from "../backend.js";

/** Options of the reference, which runs in WebAssembly on the CPU. */
export interface WasmOptions {
  /**
   * The number of threads, the caller's included; results do not depend on it. Default: as the host suggests, or 1 if it does
   * not let workers start (`Backend.fewerThreads` says why). An explicit number that cannot be had is an error.
   */
  readonly threads?: number | undefined;
  /** The default datapath of GEMMs. Default `hopper`. */
  readonly datapath?: Backend["datapath"] | undefined;
}
