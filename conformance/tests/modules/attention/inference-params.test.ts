/**
 * InferenceParams: steps with a cache, in any chunks, batches and orders, have the bits of the full forward pass, without a
 * recipe and under recipes whose scales belong to rows.
 */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { autocast } from "../../../../src/autocast.js";
import { ArgumentError } from "../../../../src/errors.js";
import { InferenceParams } from "../../../../src/modules/attention/inference-params.js";
import type { TransformerLayerOptions } from "../../../../src/modules/attention/transformer-options.js";
import { RotaryPositionEmbedding } from "../../../../src/modules/rotary-position-embedding.js";
import { TransformerLayer } from "../../../../src/modules/transformer-layer.js";
import { tensor } from "../../../../src/ops/create.js";
import {
  Float8BlockScaling,
  MXFP8BlockScaling,
  NVFP4BlockScaling,
} from "../../../../src/recipes/block-scaled.js";
import type { Recipe } from "../../../../src/recipes/recipe.js";
import { noGrad } from "../../../../src/tape/grad-mode.js";
import type { Variable } from "../../../../src/tape/variable.js";
import { Scope } from "../../../../src/tensor/scope.js";
import { draws } from "../../harness/draws.js";
import { scoped, useBackend } from "../../harness/suite.js";
import { fill, waves } from "./drawn.js";

const backend = useBackend({ threads: 1, datapath: "hopper" });
const [HIDDEN, HEADS, GROUPS, WIDTH, LONGEST] = [64, 4, 2, 16, 24];

const RECIPES: readonly (readonly [string, Recipe | undefined])[] = [
  ["none", undefined],
  ["block", new Float8BlockScaling()],
  ["mxfp8", new MXFP8BlockScaling()],
  ["nvfp4", new NVFP4BlockScaling({ rowScaledActivation: true, disableRht: true })],
];

/** A run: how long each sequence is, and which sequences get how many positions in each step. */
interface Run {
  readonly lengths: readonly number[];
  readonly steps: readonly ReadonlyMap<number, number>[];
  readonly format: "bshd" | "sbhd";
  readonly pageSize: number | undefined;
  readonly options: TransformerLayerOptions;
}

const runs: fc.Arbitrary<Run> = fc
  .record({
    lengths: fc.array(fc.integer({ min: 1, max: LONGEST }), { minLength: 1, maxLength: 3 }),
    chunks: fc.array(fc.constantFrom(1, 1, 2, 5, 9), { minLength: 24, maxLength: 24 }),
    order: fc.array(fc.boolean(), { minLength: 24, maxLength: 24 }),
    format: fc.constantFrom<"bshd" | "sbhd">("bshd", "sbhd"),
    pageSize: fc.constantFrom(undefined, 4, 8),
    options: fc.constantFrom<TransformerLayerOptions>(
      {},
      { windowSize: [5, 0], softmaxType: "off-by-one", qkNormType: "RMSNorm" },
      { softcap: 10, fuseQkvParams: true, normalization: "RMSNorm", activation: "swiglu" },
    ),
  })
  .map(({ lengths, chunks, order, ...rest }) => {
    const left = [...lengths];
    const steps: Map<number, number>[] = [];
    for (let i = 0; left.some((each) => each > 0) && i < 200; i++) {
      const ids = left.flatMap((each, id) => (each > 0 ? [id] : []));
      if (order[i % order.length]) ids.reverse();
      const step = new Map(
        ids.map((id) => [id, Math.min(left[id] as number, chunks[(i + id) % 24] as number)]),
      );
      for (const [id, count] of step) left[id] = (left[id] as number) - count;
      steps.push(step);
    }
    return { lengths, steps, ...rest };
  });

const rowBytes = (x: Variable, format: Run["format"], sequence: number, position: number): string => {
  const [a, b] = x.shape as readonly [number, number];
  const row = format === "bshd" ? sequence * b + position : position * b + sequence;
  expect(row).toBeLessThan(a * b);
  return [...x.tensor.dataSync().subarray(row * HIDDEN, (row + 1) * HIDDEN)].join();
};

/** The rows of a run in full: each sequence alone, all positions at once. */
function fullRows(layer: TransformerLayer, run: Run, angles: Angles): string[][] {
  return run.lengths.map((length, id) => {
    using _scope = new Scope();
    const shape = run.format === "bshd" ? [1, length, HIDDEN] : [length, 1, HIDDEN];
    const x = waves(backend(), id + 1, [LONGEST, HIDDEN]).slice(0, shape);
    const out = layer.forward(x, { rotaryPosEmb: angles, training: false });
    return Array.from({ length }, (_, position) => rowBytes(out, run.format, 0, position));
  });
}

type Angles = ReturnType<RotaryPositionEmbedding["forward"]>;

/** The rows of a run in steps with a cache. */
function steppedRows(layer: TransformerLayer, run: Run, angles: Angles): string[][] {
  const { pageSize, format } = run;
  using cache = new InferenceParams(backend(), 3, LONGEST, {
    numHeadsKv: GROUPS,
    headDimK: WIDTH,
    ...(pageSize ? { isPaged: true, pageSize } : {}),
  });
  const rows: string[][] = run.lengths.map(() => []);
  for (const step of run.steps) {
    using _scope = new Scope();
    cache.preStep(step);
    const longest = Math.max(...step.values());
    const [b, s] = [step.size, longest];
    const values = new Uint16Array(b * s * HIDDEN);
    const at = (i: number, position: number): number =>
      format === "bshd" ? i * s + position : position * b + i;
    for (const [i, [id, count]] of [...step].entries()) {
      const source = waves(backend(), id + 1, [LONGEST, HIDDEN]).dataSync();
      const first = (rows[id] as string[]).length;
      for (let p = 0; p < count; p++)
        values.set(
          source.subarray((first + p) * HIDDEN, (first + p + 1) * HIDDEN) as Uint16Array,
          at(i, p) * HIDDEN,
        );
    }
    const shape = format === "bshd" ? [b, s, HIDDEN] : [s, b, HIDDEN];
    const x = tensor(backend(), values, shape, "bf16");
    const out = layer.forward(x, {
      rotaryPosEmb: angles,
      inferenceParams: cache,
      selfAttnMaskType: "padding_causal",
      training: false,
    });
    for (const [i, [id, count]] of [...step].entries())
      for (let p = 0; p < count; p++) (rows[id] as string[]).push(rowBytes(out, format, i, p));
  }
  return rows;
}

describe("steps with a cache have the bits of the full forward pass", () => {
  it.each(RECIPES)("recipe %s", (_, recipe) => {
    fc.assert(
      fc.property(runs, (run) => {
        using _scope = new Scope();
        using layer = new TransformerLayer(backend(), HIDDEN, 128, HEADS, {
          ...{ numGqaGroups: GROUPS, attnInputFormat: run.format, hiddenDropout: 0 },
          ...run.options,
        });
        fill(11, layer);
        const angles = new RotaryPositionEmbedding(backend(), WIDTH).forward(LONGEST);
        const inRegion = (body: () => string[][]): string[][] =>
          noGrad(() => (recipe ? autocast({ recipe }, body) : body()));
        const expected = inRegion(() => fullRows(layer, run, angles));
        expect(inRegion(() => steppedRows(layer, run, angles))).toEqual(expected);
      }),
      { numRuns: draws(24) },
    );
  });
});

describe("a cache", () => {
  const cacheOf = (options = {}) =>
    new InferenceParams(backend(), 2, 8, { numHeadsKv: 1, headDimK: 16, ...options });

  scoped("counts the positions of its sequences, and forgets those that a step leaves out", () => {
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

  scoped("of pages that do not divide a sequence, and steps that are no steps, are refused", () => {
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

  scoped("is refused outside noGrad and before a step", () => {
    using cache = cacheOf();
    using layer = new TransformerLayer(backend(), 16, 32, 1, { hiddenDropout: 0 });
    const x = waves(backend(), 1, [1, 1, 16]);
    const call = { inferenceParams: cache, selfAttnMaskType: "padding_causal" } as const;
    expect(() => noGrad(() => layer.forward(x, call))).toThrow("preStep");
    cache.preStep(new Map([[0, 1]]));
    expect(() => layer.forward(x, call)).toThrow("noGrad");
  });
});
