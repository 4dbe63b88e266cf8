/**
 * Reference backends for ranks of one process. Their memory is poisoned and fenced, and a test fails if it leaves anything
 * allocated.
 */
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import type { DatapathFamily } from "../../../../src/formats/datapath.js";
import { GuardedBackend } from "../../../operations/guarded.js";

/**
 * Returns a list that contains `count` backends while the tests of the file run. If `isUnfenced`, memory has no fences, so that
 * live bytes count tensors only.
 */
export function useBackends(
  count: number,
  isUnfenced = false,
  datapath: DatapathFamily = "hopper",
): readonly Backend[] {
  const backends: Backend[] = [];
  beforeAll(async () => {
    for (let rank = 0; rank < count; rank++) {
      const backend = await openBackend("wasm", { threads: 1, datapath });
      backends.push(isUnfenced ? backend : new GuardedBackend(backend));
    }
  });
  afterEach(() => {
    for (const backend of backends) expect(backend.memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(async () => {
    for (const backend of backends.splice(0)) await backend.dispose();
  });
  return backends;
}
