import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ArgumentError } from "../../../../src/errors.js";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { zeros } from "../../../../src/ops/create.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { testInScope, useBackend } from "../../harness/suite.js";
import { waves } from "./drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
describe("a cache", () => {
  const cacheOf = (options = {}) =>
    new InferenceParams(backend(), 2, 8, { numHeadsKv: 1, headDimK: 16, ...options });

  testInScope("counts the positions of its sequences, and forgets those that a step leaves out", () => {
    using cache = cacheOf({ isPaged: true, pageSize: 4, totalNumPages: 3 });
    cache.preStep(new Map([["a", 5]]));
    expect(() =>
      cache.preStep(
        new Map([
          ["a", 1],
          ["b", 5],
        ]),
      ),
    ).toThrow("pages");
    expect([...cache.sequences]).toEqual([["a", 5]]);
    cache.preStep(new Map([["b", 8]]));
    expect([...cache.sequences]).toEqual([["b", 8]]);
    expect(() => cache.preStep(new Map([["b", 1]]))).toThrow("maxSequenceLength");
    cache.reset();
    expect(cache.sequences.size).toBe(0);
    cache.preStep(new Map([["b", 1]]));
    expect([...cache.sequences]).toEqual([["b", 1]]);
  });

  testInScope("of pages that do not divide a sequence, and invalid steps, are refused", () => {
    expect(() => cacheOf({ isPaged: true, pageSize: 3 })).toThrow("multiple");
    expect(() => cacheOf({ isPaged: true })).toThrow("pageSize");
    expect(() => cacheOf({ pageSize: 4 })).toThrow("isPaged");
    using cache = cacheOf();
    expect(() =>
      cache.preStep(
        new Map([
          [0, 1],
          [1, 1],
          [2, 1],
        ]),
      ),
    ).toThrow("maxBatchSize");
    expect(() => cache.preStep(new Map([[0, -1]]))).toThrow(ArgumentError);
    expect(() => cache.preStep([] as never)).toThrow("Map");
  });

  testInScope("is refused outside noGrad and before a step", () => {
    using cache = cacheOf();
    using layer = new TransformerLayer(backend(), 16, 32, 1, { hiddenDropout: 0 });
    const x = waves(backend(), 1, [1, 1, 16]);
    const call = { inferenceParams: cache, selfAttnMaskType: "padding_causal" } as const;
    expect(() => noGrad(() => layer.forward(x, call))).toThrow("preStep");
    cache.preStep(new Map([[0, 1]]));
    expect(() => layer.forward(x, call)).toThrow("noGrad");
  });

  /**
   * The sizes of a cache and its steps: the numbers of new positions of some sequences, which often end at the end of a page, or
   * null for `reset`.
   */
  const programs = fc
    .record({
      pageSize: fc.option(fc.constantFrom(1, 2, 4), { nil: undefined, freq: 6 }),
      perSequence: fc.integer({ min: 1, max: 4 }),
      maxBatchSize: fc.integer({ min: 1, max: 4 }),
      totalNumPages: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }),
    })
    .chain((sizes) => {
      const { pageSize = 4, perSequence } = sizes;
      const count = fc.oneof(
        fc.nat({ max: 5 }),
        fc.integer({ min: 1, max: perSequence }).map((pages) => pages * pageSize),
      );
      const step = fc.uniqueArray(fc.tuple(fc.nat({ max: 4 }), count), {
        ...{ selector: ([id]: [number, number]) => id, minLength: 1, maxLength: 5 },
      });
      const steps = fc.array(fc.option(step, { freq: 6 }), { minLength: 1, maxLength: 8 });
      return fc.record({ sizes: fc.constant(sizes), steps });
    });
  type Program = typeof programs extends fc.Arbitrary<infer P> ? P : never;
  const FULL: [number, number][] = [
    [0, 4],
    [1, 4],
  ];
  const RESET: Program = {
    sizes: { pageSize: 2, perSequence: 2, maxBatchSize: 2, totalNumPages: undefined },
    steps: [FULL, null, FULL],
  };

  it("accepts a step exactly if positions and pages suffice, and no two sequences share a page", () => {
    fc.assert(
      fc.property(programs, ({ sizes: { pageSize, perSequence, maxBatchSize, totalNumPages }, steps }) => {
        const size = pageSize ?? 4 * perSequence;
        const longest = pageSize ? pageSize * perSequence : size;
        const total = (pageSize && totalNumPages) || maxBatchSize * (longest / size);
        using cache = new InferenceParams(backend(), maxBatchSize, longest, {
          ...{ numHeadsKv: 1, headDimK: 1 },
          ...(pageSize ? { isPaged: true, pageSize, totalNumPages } : {}),
        });
        let lengths: ReadonlyMap<number, number> = new Map();
        let pagesOfSequences: ReadonlyMap<number, readonly number[]> = new Map();
        for (const step of steps) {
          using _ = new Scope();
          if (!step) {
            cache.reset();
            expect(cache.sequences.size).toBe(0);
            lengths = new Map();
            pagesOfSequences = new Map();
            continue;
          }
          const next = new Map(step.map(([id, count]) => [id, (lengths.get(id) ?? 0) + count]));
          const pages = [...next.values()].reduce((sum, length) => sum + Math.ceil(length / size), 0);
          const fits = [...next.values()].every((length) => length <= longest);
          if (step.length > maxBatchSize || !fits || pages > total)
            expect(() => cache.preStep(new Map(step))).toThrow(ArgumentError);
          else {
            cache.preStep(new Map(step));
            lengths = next;
            const rows = Math.max(...step.map(([, count]) => count));
            const heads = zeros(backend(), "bf16", [step.length, rows, 1, 1]);
            const table = cache.append(1, heads, heads).pages.dataSync();
            const rowsById = new Map(
              [...next].map(([id, length], row) => {
                const firstPage = row * (longest / size);
                return [id, [...table.subarray(firstPage, firstPage + Math.ceil(length / size))]];
              }),
            );
            for (const [id, rows] of rowsById)
              expect(rows).toEqual(expect.arrayContaining([...(pagesOfSequences.get(id) ?? [])]));
            expect(new Set([...rowsById.values()].flat()).size).toBe(pages);
            expect([...rowsById.values()].flat().every((page) => page < total)).toBe(true);
            pagesOfSequences = rowsById;
          }
          expect([...cache.sequences]).toEqual([...lengths]);
        }
      }),
      { numRuns: draws(400), examples: [[RESET]] },
    );
  });
});
