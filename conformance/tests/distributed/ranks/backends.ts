/** Reference backends for ranks of one process. Each is poisoned and fenced, and no test may leave anything on it. */
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { GuardedBackend } from "../../../operations/guarded.js";

/**
 * Returns a list that has `count` backends while the tests of the file run. `bare`: they are not fenced, so that their live bytes
 * are those of the tensors.
 */
export function useBackends(count: number, bare = false): readonly Backend[] {
  const backends: Backend[] = [];
  beforeAll(async () => {
    for (let rank = 0; rank < count; rank++) {
      const backend = await openBackend("wasm", { threads: 1 });
      backends.push(bare ? backend : new GuardedBackend(backend));
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
