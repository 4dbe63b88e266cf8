/** What the reference is opened with: a file of its own, so that the package's types name nothing of WebAssembly's. */
import type { Backend } from "../backend.js";

/** What the reference, in WebAssembly on the CPU, is opened with. */
export interface WasmOptions {
  /**
   * Threads to compute with, the caller's included; results do not depend on it. Default: what the host suggests, or one
   * where it lets no worker start (`Backend.fewerThreads` says why); a number that is given and cannot be had is an error.
   */
  readonly threads?: number | undefined;
  /** The datapath GEMMs take unless told otherwise. Default `hopper`. */
  readonly datapath?: Backend["datapath"] | undefined;
}
