/** Runs operations on inputs drawn from a fixed seed, for backends that observe the calls. */
import * as fc from "fast-check";
import { afterAll, beforeAll } from "vitest";
import type { Backend } from "../../../../src/backends/backend.js";
import { openBackend } from "../../../../src/backends/open.js";
import { UnsupportedError } from "../../../../src/errors.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { OPERATIONS, type OperationName } from "../../../operations/operations.js";
import { derivedSeed } from "../draws.js";

/** Wraps a reference backend for the duration of the enclosing tests. */
export function useWitness<W>(around: (reference: Backend) => W): () => W {
  const openedPairs: { readonly reference: Backend; readonly witness: W }[] = [];
  beforeAll(async () => {
    const reference = await openBackend("wasm", { threads: 1, datapath: "hopper" });
    openedPairs.push({ reference, witness: around(reference) });
  });
  afterAll(() => openedPairs.pop()?.reference.dispose());
  return () => (openedPairs[0] as (typeof openedPairs)[number]).witness;
}

/** Runs the operation `name` on `count` inputs. Inputs that the backend does not support are skipped. */
export function runDrawn(backend: Backend, name: OperationName, count: number): void {
  const runOperation = <K extends OperationName>(key: K): void => {
    const { arbitrary, run: runCase } = OPERATIONS[key];
    for (const input of fc.sample(arbitrary, { numRuns: count, seed: derivedSeed(1) })) {
      using _ = new Scope();
      try {
        runCase(backend, input);
      } catch (error) {
        if (!(error instanceof UnsupportedError)) throw error;
      }
    }
  };
  runOperation(name);
}
