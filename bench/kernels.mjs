// A backend of one thread together with the exports it calls, so that kernels can be timed without the calls
// around them, and beside the scalar loop that the interface does not offer.

import { openWasmOver } from "../dist/src/backends/wasm/backend.js";
import { openInstance } from "../dist/src/backends/wasm/instance.js";

export async function openKernels() {
  const instance = await openInstance();
  const backend = await openWasmOver(instance, { threads: 1 });
  return { backend, exports: instance.exports };
}
