// Opens a single-threaded backend with its WebAssembly exports. Benchmarks call the exports directly, to exclude the overhead of
// the public interface and to time the scalar loop, which the public interface does not offer.

import { openWasmOver } from "../dist/src/backends/wasm/backend.js";
import { openInstance } from "../dist/src/backends/wasm/instance.js";

export async function openKernels() {
  const instance = await openInstance();
  const backend = await openWasmOver(instance, { threads: 1 });
  return { backend, exports: instance.exports };
}
