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
  const backends: Backend[] = [];
  const current = (): Backend => backends[0] as Backend;
  beforeAll(async () => {
    backends.push(new GuardedBackend(await openBackend("wasm", options)));
  });
  afterEach(() => {
    expect(current().memoryUse()).toMatchObject({ live: 0, blocks: 0 });
  });
  afterAll(() => backends.pop()?.dispose());
  return current;
}

/** Gives each test a new reference backend and disposes of it afterwards. No allocation may then be alive. */
export function useBackendPerTest(receive: (backend: Backend) => void): void {
  let backend: Backend;
  beforeEach(async () => {
    backend = await openBackend("wasm", { threads: 1 });
    receive(backend);
  });
  afterEach(async () => {
    const { live, blocks } = backend.memoryUse();
    await backend.dispose();
    expect({ live, blocks }).toEqual({ live: 0, blocks: 0 });
  });
}

/** Reference backends with 1, 2 and 3 threads. */
export function useThreads(): () => readonly Backend[] {
  const getBackends = [1, 2, 3].map((threads) => useBackend({ threads }));
  return () => getBackends.map((current) => current());
}

/** Tests that `run` gives the same bits on all backends. */
export function testEqualBits(
  name: string,
  backends: () => readonly Backend[],
  run: (b: Backend) => Answer,
): void {
  testInScope(name, () => {
    const [firstAnswer = {}, ...otherAnswers] = backends().map(run);
    expect(Object.keys(firstAnswer)).not.toEqual([]);
    for (const answer of otherAnswers) assertSameAnswer(answer, firstAnswer);
  });
}

/** A test that runs in a scope, which frees the memory of its tensors. */
export function testInScope(name: string, body: () => void): void {
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
 * Runs `body` with an injected failure of allocation number `failingIndex` (from 0). Returns the error, and the number of
 * allocations.
 */
export function runWithFailure(
  backend: Backend,
  failingIndex: number,
  body: () => void,
): { readonly error: unknown; readonly allocations: number } {
  const memory = memoryOf(backend);
  const { allocate } = memory;
  let allocations = 0;
  memory.allocate = (bytes) => {
    if (allocations++ === failingIndex) throw new OutOfMemoryError(bytes, 0, "for this test");
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
