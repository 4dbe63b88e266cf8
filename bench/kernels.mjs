// Opens a single-threaded backend with a pool that calls its exports. Benchmarks call the exports by the pool, to exclude the
// overhead of the public interface and to time the scalar loop, which the public interface does not offer.

import { openWasmOver } from "../dist/src/backends/wasm/backend.js";
import { Heap } from "../dist/src/backends/wasm/heap.js";
import { openInstance } from "../dist/src/backends/wasm/instance.js";
import { Pool } from "../dist/src/backends/wasm/pool.js";

export async function openKernels() {
  const instance = await openInstance();
  const backend = await openWasmOver(instance, { threads: 1 });
  return { backend, pool: await Pool.open(instance, new Heap(instance), 1) };
}
