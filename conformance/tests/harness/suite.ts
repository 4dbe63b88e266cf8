/** Helpers for test files: backends whose memory is checked after every test, and laws as tests. */

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { type OpenOptions, openBackend } from "../../../src/backends/open.js";
import { OutOfMemoryError } from "../../../src/errors.js";
import { memoryOf } from "../../../src/tensor/memory.js";
import { Scope } from "../../../src/tensor/scope.js";
import { assertSameAnswer, LAWS } from "../../laws/laws.js";
import { GuardedBackend } from "../../operations/guarded.js";
import type { Answer } from "../../operations/operation.js";
import { backendSubject, type OperationName, ORACLE } from "../../operations/operations.js";
import { draws } from "./draws.js";

/**
 * A reference backend for the test file, with poisoned and fenced memory. After every test it may not have live memory.
 */
export function useBackend(options: OpenOptions = { threads: 1 }): () => Backend {
  const opened: Backend[] = [];
  const current = (): Backend => opened[0] as Backend;
  beforeAll(async () => {
    opened.push(new GuardedBackend(await openBackend("wasm", options)));
  });
  afterEach(() => {
    expect(current().memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(() => opened.pop()?.dispose());
  return current;
}

/** Gives each test a new reference backend and disposes of it afterwards. No allocation may then be alive. */
export function useFreshBackend(give: (backend: Backend) => void): void {
  let backend: Backend;
  beforeEach(async () => {
    backend = await openBackend("wasm", { threads: 1 });
    give(backend);
  });
  afterEach(async () => {
    const { live, blocks } = backend.memoryUse();
    await backend.dispose();
    expect({ live, blocks }).toEqual({ live: 0, blocks: 0 });
  });
}

/** Reference backends with 1, 2 and 3 threads. */
export function useThreads(): () => readonly Backend[] {
  const each = [1, 2, 3].map((threads) => useBackend({ threads }));
  return () => each.map((current) => current());
}

/** Tests that `run` gives the same bits on all backends. */
export function sameOnAll(
  name: string,
  backends: () => readonly Backend[],
  run: (b: Backend) => Answer,
): void {
  scoped(name, () => {
    const [first = {}, ...others] = backends().map(run);
    expect(Object.keys(first)).not.toEqual([]);
    for (const other of others) assertSameAnswer(other, first);
  });
}

/** A test that must free all its memory. */
export function scoped(name: string, body: () => void): void {
  it(name, () => {
    using _scope = new Scope();
    body();
  });
}

/** Tests every law of these operations on a backend against the oracles, over `runs` inputs of each in a full run. */
export function describeLaws(
  backend: () => Backend,
  operations: readonly OperationName[],
  { runs, seed }: { readonly runs: number; readonly seed: number },
): void {
  describe("laws", () => {
    for (const law of LAWS.filter(({ operation }) => operations.includes(operation))) {
      it(`${law.operation}: ${law.name}`, async () => {
        const options = { runs: draws(runs), seed };
        const result = await law.check(backendSubject(backend()), ORACLE, options);
        expect(result).toEqual({ runs: options.runs, declined: [], failure: undefined });
      });
    }
  });
}

/**
 * Runs `body` with an injected failure of allocation number `failing` (from 0). Returns the error, and the number of allocations.
 */
export function failingAt(
  backend: Backend,
  failing: number,
  body: () => void,
): { readonly error: unknown; readonly allocations: number } {
  const memory = memoryOf(backend);
  const { allocate } = memory;
  let allocations = 0;
  memory.allocate = (bytes) => {
    if (allocations++ === failing) throw new OutOfMemoryError(bytes, 0, "for this test");
    return allocate.call(memory, bytes);
  };
  try {
    body();
    return { error: undefined, allocations };
  } catch (error) {
    return { error, allocations };
  } finally {
    memory.allocate = allocate;
  }
}
