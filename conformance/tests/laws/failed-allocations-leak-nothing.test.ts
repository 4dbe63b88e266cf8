/** Memory runs out in the middle of an operation. Whichever allocation fails, nothing leaks and no result is wrong. */
import * as fc from "fast-check";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { Backend } from "../../../src/backends/backend.js";
import { openBackend } from "../../../src/backends/open.js";
import { Heap } from "../../../src/backends/wasm/heap.js";
import { OutOfMemoryError, UnsupportedError } from "../../../src/errors.js";
import { tensor } from "../../../src/ops/create.js";
import { Scope } from "../../../src/tensor/scope.js";
import { assertSameAnswer } from "../../laws/laws.js";
import type { Answer } from "../../operations/operation.js";
import { type Cases, OPERATION_NAMES, OPERATIONS, type OperationName } from "../../operations/operations.js";
import { draws } from "../harness/draws.js";

let backend: Backend;
beforeAll(async () => {
  backend = await openBackend("wasm", { threads: 2 });
});
afterEach(() => vi.restoreAllMocks());
afterAll(() => backend.dispose());

/** Counts allocations, those that threads keep included, and fails at a chosen one. */
class Pieces {
  readonly liveAddresses = new Set<number>();
  allocationCount = 0;
  failingIndex = Number.POSITIVE_INFINITY;

  watch(): void {
    const { reserve, release } = Heap.prototype;
    const pieces = this;
    vi.spyOn(Heap.prototype, "reserve").mockImplementation(function (this: Heap, bytes) {
      if (pieces.allocationCount++ === pieces.failingIndex)
        throw new OutOfMemoryError(bytes, 0, "for this test");
      const address = reserve.call(this, bytes);
      pieces.liveAddresses.add(address);
      return address;
    });
    vi.spyOn(Heap.prototype, "release").mockImplementation(function (this: Heap, address) {
      pieces.liveAddresses.delete(address);
      release.call(this, address);
    });
  }

  /** Makes allocation number `k` from now on fail (`k` succeed before it). */
  failAt(k: number): void {
    this.allocationCount = 0;
    this.failingIndex = k;
  }
}

/** The maximum number of allocations at which an operation is made to fail. */
const MAX_PIECES = 60;

describe("if any one of its allocations fails,", () => {
  const check = <K extends OperationName>(name: K): void => {
    const { arbitrary, run } = OPERATIONS[name];
    const answer = (input: Cases[K]): Answer => {
      using _scope = new Scope();
      return run(backend, input);
    };
    it(`${name} throws OutOfMemoryError or gives the same result, and frees its memory`, () => {
      const pieces = new Pieces();
      pieces.watch();
      const guard = tensor(backend, Float32Array.of(1, -2, 3));
      fc.assert(
        fc.property(arbitrary as fc.Arbitrary<Cases[K]>, (input) => {
          pieces.failAt(Number.POSITIVE_INFINITY);
          let expected: Answer;
          try {
            expected = answer(input);
          } catch (error) {
            if (error instanceof UnsupportedError) return;
            throw error;
          }
          const [allocationsNeeded, memoryBefore, use] = [
            pieces.allocationCount,
            new Set(pieces.liveAddresses),
            backend.memoryUse(),
          ];
          for (let k = 0; k < Math.min(allocationsNeeded, MAX_PIECES); k++) {
            pieces.failAt(k);
            try {
              assertSameAnswer(answer(input), expected);
            } catch (error) {
              if (!(error instanceof OutOfMemoryError)) throw error;
            }
            expect(pieces.liveAddresses).toEqual(memoryBefore);
            expect(backend.memoryUse()).toMatchObject({ live: use.live, blocks: use.blocks });
          }
          pieces.failAt(Number.POSITIVE_INFINITY);
          assertSameAnswer(answer(input), expected);
        }),
        { numRuns: draws(4) },
      );
      expect(guard.dataSync()).toEqual(Float32Array.of(1, -2, 3));
      guard.dispose();
    });
  };
  for (const name of OPERATION_NAMES) check(name);
});
